"""Queue order: which job is next? Higher priority first, then jobs known to be short, then the oldest."""

from __future__ import annotations

from jobyard.scheduling.snapshot import HeldSlot, Request, Running

SHORT_GPU_SECONDS = 3600.0  # one GPU for an hour: a job that needs less goes before others of its priority

Position = tuple[int, bool, int, int]


def rank(item: Request | HeldSlot | Running) -> tuple[int, int]:
    """Smaller comes first: priority, then age."""
    return (-item.priority, item.age)


def queue_position(priority: int, gpu_seconds: float | None, age: int) -> tuple[int, bool, int]:
    """Smaller comes first. `gpu_seconds` is the estimated rest; None: not known, or not reliable after an overrun."""
    is_short = gpu_seconds is not None and gpu_seconds < SHORT_GPU_SECONDS
    return (-priority, not is_short, age)


def position_of(request: Request) -> Position:
    """Smaller comes first. No two jobs have the same: of one age the one that was submitted first is first."""
    return (*queue_position(request.priority, request.gpu_seconds, request.age), request.number or 0)


def end_of(priority: int) -> tuple[int]:
    """After every position of this priority, and before those of lower ones: a tuple is before all that go on as it."""
    return (1 - priority,)
