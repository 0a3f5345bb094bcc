"""Training record: how far is a job that reports, where are its checkpoints, and how often was it preempted?"""

from __future__ import annotations

from dataclasses import dataclass, field

from jobyard.model.events import YieldRequested
from jobyard.model.training import Progress, Size


@dataclass(slots=True)
class TrainingRecord:
    """By task, where a task has reported."""

    estimate_seconds: float | None = None
    progress: dict[int, Progress] = field(default_factory=dict)
    steps: dict[int, Progress] = field(default_factory=dict)  # between two journalled reports; not kept
    # The machine, or the cluster in whose storage it is.
    checkpoint_places: dict[int, str] = field(default_factory=dict)
    profile_key: str = ""  # worked out when it is first needed
    fixed_size: Size | None = None  # set by a user (`yard scale`)

    def forget(self, number: int) -> None:
        """The task starts from the beginning, or its progress is not needed any more."""
        self.progress.pop(number, None)
        self.checkpoint_places.pop(number, None)

    def progress_now(self, number: int) -> Progress | None:
        """The newest progress, including reports that are not journalled."""
        return self.steps.get(number) or self.progress.get(number)


@dataclass(slots=True)
class PreemptionRecord:
    """Stops at a checkpoint: the one that is asked for now, and how many there were."""

    asked: YieldRequested | None = None  # since its slots were opened
    next_size: Size | None = None  # the size of its next start
    count: int = 0  # to make room for others
    resizes: int = 0  # to change its size
    missed_deadline: str = ""  # the message if it did not stop in time
