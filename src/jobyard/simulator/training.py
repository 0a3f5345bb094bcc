"""Simulated training: how does a training job run? By epochs, with a checkpoint after each, and memory that grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jobyard.model.job import JobSpec
from jobyard.model.task import AttemptId
from jobyard.model.training import HISTORY, Epoch, Progress, Size


def power_law(seconds: float, exponent: float = 0.9) -> Callable[[Size], float]:
    """A speed curve: `seconds` per epoch with one device (or one worker without), less with more."""
    return lambda size: seconds / (size.devices or size.workers) ** exponent


@dataclass(frozen=True, slots=True)
class Trainee:
    """What the simulated process does. It can be preempted, and then stops where an epoch begins."""

    epochs: int
    epoch_seconds: Callable[[Size], float] = field(default_factory=lambda: power_law(60.0))
    restart_seconds: float = 10.0  # from its start to its first step
    checkpoint_seconds: float = 1.0
    gpu_mib: int = 0  # on each of its devices, once it has grown
    gpu_ramp: tuple[float, ...] = (0.5, 0.9)  # parts of that in its first epochs
    can_yield: bool = True
    gpu_percent: int = 90

    def gpu_mib_in(self, epoch: int) -> int:
        """What it has allocated in the n-th epoch of this attempt."""
        return int(self.gpu_mib * (self.gpu_ramp[epoch] if epoch < len(self.gpu_ramp) else 1.0))


Trainees = Callable[[JobSpec, AttemptId], Trainee | None]  # None: not a training job


@dataclass(slots=True)
class Course:
    """One attempt at a training, as its reports tell of it."""

    trainee: Trainee
    seconds: float  # of one epoch at the size that it has
    done: int  # epochs that are saved
    reports: bool = True  # only the first task of a gang does
    begun: bool = False
    is_asked: bool = False  # to stop at its next checkpoint
    saved_at: float = 0.0
    gpu_mib: int = 0
    peak_gpu_mib: int = 0
    history: list[Epoch] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return self.done >= self.trainee.epochs

    @property
    def yields_now(self) -> bool:
        """An epoch is about to begin: does it stop here? Never before the last one."""
        return self.is_asked and self.trainee.can_yield and self.done < self.trainee.epochs - 1

    def arrive(self, now: float) -> None:
        """Called where an epoch begins: at the start, or after one that is done and saved."""
        if self.begun:
            self.done += 1
            self.saved_at = now
            self.history.append(Epoch(self.done, self.seconds))
        self.begun = True
        self.gpu_mib = self.trainee.gpu_mib_in(len(self.history))

    def progress(self) -> Progress:
        return Progress(
            epochs_done=self.done,
            epochs_total=self.trainee.epochs,
            epoch_seconds=self.seconds if self.history else 0.0,
            saved_at=self.saved_at,
            checkpoint_seconds=self.trainee.checkpoint_seconds if self.history else 0.0,
            restart_seconds=self.trainee.restart_seconds if self.begun else 0.0,
            can_yield=self.trainee.can_yield,
            has_yielded=self.yields_now,
            history=tuple(self.history[-HISTORY:]),
        )


def untrained(spec: JobSpec, attempt: AttemptId) -> None:
    """No job is a training job."""
    return None
