"""Resource use: what did the attempts of a job use, and what more memory does it get after it ran out of it?"""

from __future__ import annotations

from dataclasses import dataclass, field

from jobyard.engine.end_rate import EndRate
from jobyard.model.events import Used


@dataclass(slots=True)
class ResourceUse:
    """Sums over all attempts, and what was last measured of those that run."""

    busy_seconds: float = 0.0
    peak_memory_mib: int = 0
    mean_seconds: dict[int, float] = field(default_factory=dict)  # by group: how long its attempts run
    # Measured, by task; not kept.
    used: dict[int, Used] = field(default_factory=dict)
    gpu_percent: float | None = None  # a running mean: utilisation jumps
    idle_since: dict[int, float] = field(default_factory=dict)  # tasks whose GPUs are idle
    end_rate: EndRate = field(default_factory=EndRate)

    def learn_duration(self, group: int, seconds: float) -> None:
        known = self.mean_seconds.get(group)
        self.mean_seconds[group] = seconds if known is None else known + 0.1 * (seconds - known)

    def measure(self, used: Used, at: float) -> None:
        number, percent = used.attempt.task, used.gpu_percent
        self.used[number] = used
        if percent is not None:
            known = self.gpu_percent
            self.gpu_percent = percent if known is None else known + 0.2 * (percent - known)
        if percent == 0:
            self.idle_since.setdefault(number, at)
        else:
            self.idle_since.pop(number, None)

    def forget_measured(self, number: int) -> None:
        """An attempt of this task has ended."""
        self.used.pop(number, None)
        self.idle_since.pop(number, None)


@dataclass(slots=True)
class MemoryGrant:
    """The least memory that a job gets after it ran out; 0: what it asked for."""

    gpu_mib: int = 0
    memory_mib: int = 0
    requeues: int = 0  # attempts that ran out of memory and were repeated with more
