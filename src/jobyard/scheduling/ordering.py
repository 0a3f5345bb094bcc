"""Queue order: which job is next? Higher priority first, then jobs known to be short, then the oldest."""

from __future__ import annotations

from collections.abc import Iterable

from jobyard.scheduling.snapshot import HeldSlot, Request, Running

SHORT_GPU_SECONDS = 3600.0  # one GPU for an hour: a job that needs less goes before others of its priority


def rank(item: Request | HeldSlot | Running) -> tuple[int, int]:
    """Smaller comes first: priority, then age."""
    return (-item.priority, item.age)


def queue_position(priority: int, gpu_seconds: float | None, age: int) -> tuple[int, bool, int]:
    """Smaller comes first. `gpu_seconds` is the estimated rest; None: not known, or not reliable after an overrun."""
    is_short = gpu_seconds is not None and gpu_seconds < SHORT_GPU_SECONDS
    return (-priority, not is_short, age)


def order_requests(requests: Iterable[Request]) -> list[Request]:
    return sorted(requests, key=lambda each: queue_position(each.priority, each.gpu_seconds, each.age))
