"""Training: what does a training job say about epochs, progress and the sizes that it can have?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from jobyard.model.limits import Gpus, Path, SomeSteps, TaskLimit, Timeout

ALL = 1 << 16  # as the most GPUs or workers of an elastic job: as many as there are
YIELD_SECONDS = 600.0
IDLE_GPU_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Training:
    """What the submitter told about the training. Everything may be missing: the job itself reports as it runs."""

    epochs: SomeSteps | None = None
    batch_size: SomeSteps | None = None
    training_set_size: SomeSteps | None = None
    estimated_seconds: Timeout | None = None  # the user's guess of the whole; corrected by the first epoch
    heartbeat_steps: SomeSteps = 100  # steps between two reports
    preemptible: bool | None = None  # None: yes, once it has reported that it can stop at a checkpoint
    yield_seconds: Timeout | None = None  # to its next checkpoint once asked to stop; None: as its epochs allow
    log_dir: Path = ""  # where TensorBoard looks
    idle_gpu_seconds: Timeout = IDLE_GPU_SECONDS  # how long it may hold a GPU without using it
    idle_gpu_stop: bool = False  # then it is stopped; otherwise there is only a warning


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """How large an elastic job is: tasks, and GPUs of each."""

    workers: int = 1
    gpus: int = 0

    @property
    def devices(self) -> int:
        return self.workers * self.gpus

    def __str__(self) -> str:
        parts = [f"{self.gpus} GPU{'s' if self.gpus != 1 else ''}"] if self.gpus or self.workers == 1 else []
        if self.workers > 1 or not parts:
            parts.insert(0, f"{self.workers} worker{'s' if self.workers != 1 else ''}")
        return " with ".join(parts) + (" each" if len(parts) > 1 else "")


@dataclass(frozen=True, slots=True)
class Elastic:
    """The sizes that a job can have, both ends included. One that is None does not change."""

    gpus: tuple[Gpus, Gpus] | None = None  # of each worker
    workers: tuple[TaskLimit, TaskLimit] | None = None

    def sizes(self, now: Size, most_gpus: int, most_workers: int) -> tuple[Size, ...]:
        """Smallest first: those that a yard of this size could ever give it. `now` tells what does not change."""
        gpus = self.gpus or (now.gpus, now.gpus)
        workers = self.workers or (now.workers, now.workers)
        some = product(
            range(workers[0], min(workers[1], max(workers[0], most_workers)) + 1),
            range(gpus[0], min(gpus[1], max(gpus[0], most_gpus)) + 1),
        )
        return tuple(sorted((Size(*each) for each in some), key=lambda size: (size.devices, size.workers)))


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch that was done."""

    number: int  # the first is 1
    seconds: float
    steps: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)


HISTORY = 100  # epochs that a Progress remembers


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one attempt has come: what its reports add up to. Levels, not changes: the newest replaces the last."""

    epochs_done: int = 0  # of the whole job, earlier attempts included; never more than is saved, if it tells of saves
    epochs_total: int | None = None
    steps: int = 0  # of this attempt
    step_seconds: float = 0.0  # mean, of this attempt
    epoch_seconds: float = 0.0  # median of its last HISTORY epochs; 0: none is done
    saved_at: float = 0.0  # 0: no checkpoint of this attempt is known
    checkpoint_seconds: float = 0.0  # to write one; 0: not known
    restart_seconds: float = 0.0  # from its start to its first step
    can_yield: bool = False  # it has said that it stops at a checkpoint when asked
    has_yielded: bool = False
    percent: float | None = None  # as told by jobs that do not count epochs
    remaining_seconds: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)  # the newest
    history: tuple[Epoch, ...] = ()  # the last HISTORY of this attempt
    trouble: str = ""  # a sentence about reports that could not be read
    adds_history: bool = False  # the history lacks what an earlier one of this attempt had: see `after`

    @property
    def milestones(self) -> tuple[object, ...]:
        """What is worth writing down when it changes."""
        return (self.epochs_done, self.epochs_total, self.can_yield, self.saved_at, self.trouble)

    def after(self, known: Progress | None) -> Progress:
        """With its whole history, if `known` is what was last known of the same attempt."""
        if not self.adds_history:
            return self
        before = known.history if known is not None else ()
        if self.history:
            before = tuple(epoch for epoch in before if epoch.number < self.history[0].number)
        return replace(self, history=(*before, *self.history)[-HISTORY:], adds_history=False)
