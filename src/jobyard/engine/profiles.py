"""Profiles: what was measured of a kind of job? Stored by what the job runs, for the next job of its kind."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from jobyard.model.job import JobSpec
from jobyard.model.training import Progress, Size, Training

STEADY_EPOCHS = 2  # after so many epochs a job's memory does not grow any more


@dataclass(slots=True)
class AtSize:
    """Seconds as measured by the newest attempt that had this size."""

    epoch_seconds: float = 0.0
    step_seconds: float = 0.0


@dataclass(slots=True)
class Profile:
    by_size: dict[Size, AtSize] = field(default_factory=dict)
    epochs: int = 0  # that were done while its memory was measured
    peak_memory_mib: int = 0
    peak_gpu_memory_mib: int = 0  # of one task on one device
    least_gpu_mib: int = 0  # the least that a job gets after one ran out of memory; until the peak is known
    gpu_percent: int | None = None
    checkpoint_seconds: float = 0.0
    restart_seconds: float = 0.0

    @property
    def is_steady(self) -> bool:
        return self.epochs >= STEADY_EPOCHS and self.peak_gpu_memory_mib > 0

    def learn(self, size: Size, progress: Progress, epochs: int) -> None:
        """`epochs` are those that were done since the last time."""
        if progress.epoch_seconds or progress.step_seconds:
            known = self.by_size.get(size) or AtSize()
            # In the first epoch of an attempt, the peak of earlier attempts still holds.
            self.by_size[size] = AtSize(progress.epoch_seconds or known.epoch_seconds, progress.step_seconds)
        if self.peak_gpu_memory_mib:
            self.epochs += epochs
        self.checkpoint_seconds = progress.checkpoint_seconds or self.checkpoint_seconds
        self.restart_seconds = progress.restart_seconds or self.restart_seconds

    def learn_use(self, memory_mib: int, gpu_memory_mib: int, gpu_percent: int | None = None) -> None:
        self.peak_memory_mib = max(self.peak_memory_mib, memory_mib)
        self.peak_gpu_memory_mib = max(self.peak_gpu_memory_mib, gpu_memory_mib)
        if gpu_percent is not None:
            self.gpu_percent = gpu_percent

    def epoch_seconds(self, size: Size) -> float | None:
        found = self.by_size.get(size)
        return found.epoch_seconds if found and found.epoch_seconds else None


def kind_of(spec: JobSpec) -> str:
    """Jobs of one kind run the same commands in the same image, with batches and a training set of the same size."""
    digest = hashlib.sha256(spec.container.image.encode())
    training = spec.training or Training()
    digest.update(f"\0{training.batch_size}\0{training.training_set_size}".encode())
    for group in spec.groups:
        command = group.command
        text = command.lines.text if command.lines is not None else command.shell or "\0".join(command.argv)
        if command.script is not None:
            text = f"{command.script.text}\0{text}"
        digest.update(f"\0{group.name}\0{text}".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]
