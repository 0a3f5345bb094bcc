"""Task, attempt, slot: what is one task doing now, and how did an attempt at it end?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jobyard.model.job import Reason, State
from jobyard.model.resources import Placement
from jobyard.model.training import Progress


class AttemptId(NamedTuple):
    """One try at a task. The number only grows; at most one attempt of a task counts."""

    job: str
    task: int
    number: int

    def __str__(self) -> str:
        return f"{self.job}.{self.task}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> AttemptId:
        job, task, number = text.rsplit(".", 2)
        return cls(job, int(task), int(number))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen of an attempt that ended. `reason` is set where the exit status alone does not tell."""

    started_at: float
    finished_at: float
    exit_code: int | None = None
    signal: int | None = None
    reason: Reason | None = None
    message: str = ""
    peak_memory_mib: int = 0
    peak_gpu_memory_mib: int = 0
    progress: Progress | None = None  # where it reported any

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0 and self.reason is None


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """An attempt that ended and was followed by another one."""

    number: int
    node: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Slot:
    """Room on a node held for one group of a job: it runs tasks of that group one after another.

    With `replica` set, only tasks of that replica (its parallelism is the number of its slots).
    """

    id: str
    job: str
    group: int
    placement: Placement
    replica: int | None = None


@dataclass(frozen=True, slots=True)
class ActiveAttempt:
    """What a task has while it is with an executor: STARTING, RUNNING or STOPPING."""

    slot: str
    is_yielding: bool = False  # being preempted: STOPPING at its next checkpoint, not at once


@dataclass(frozen=True, slots=True)
class Task:
    """One task that runs, failed or was tried before; a task that was never tried has no object."""

    number: int
    state: State = State.PENDING
    attempt: int = 0
    reason: Reason | None = None
    message: str = ""
    active: ActiveAttempt | None = None
    node: str = ""  # where the newest attempt ran
    unit: str = ""  # the pod of the newest attempt that began on a cluster
    failures: int = 0  # attempts that ended badly; what `retries` counts
    not_before: float = 0.0  # PENDING after a failure: the next attempt starts no sooner; 0: at any time
    outcome: Outcome | None = None  # of the newest attempt that ended
    started_at: float | None = None  # of the newest attempt; None: its process is not known to exist, or it waits
    earlier: tuple[PastAttempt, ...] = ()  # the last ones before the newest attempt

    @property
    def slot(self) -> str:
        """Only of an active task."""
        assert self.active is not None, self
        return self.active.slot

    @property
    def is_yielding(self) -> bool:
        return self.active is not None and self.active.is_yielding
