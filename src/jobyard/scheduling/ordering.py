"""Queue order: which job is next? Higher priority first, then jobs known to be short, then the oldest."""

from __future__ import annotations

from collections.abc import Iterable

from jobyard.scheduling.snapshot import HeldSlot, Request, Running

SHORT_GPU_SECONDS = 3600.0  # one GPU for an hour: a job that needs less goes before others of its priority


def rank(item: Request | HeldSlot | Running) -> tuple[int, int]:
    """Smaller comes first: priority, then age."""
    return (-item.priority, item.age)


def is_short(request: Request) -> bool:
    """Is it estimated to be short? After an overrun the estimate is not used any more (None)."""
    return request.gpu_seconds is not None and request.gpu_seconds < SHORT_GPU_SECONDS


def order_requests(requests: Iterable[Request]) -> list[Request]:
    return sorted(requests, key=lambda request: (-request.priority, not is_short(request), request.age))
