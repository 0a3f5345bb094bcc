"""Who is next? Higher priority first, then who came first."""

from __future__ import annotations

from collections.abc import Iterable

from jobyard.scheduling.snapshot import HeldSlot, Request


def rank(item: Request | HeldSlot) -> tuple[int, int]:
    """Smaller goes first."""
    return (-item.priority, item.age)


def order_requests(requests: Iterable[Request]) -> list[Request]:
    return sorted(requests, key=rank)
