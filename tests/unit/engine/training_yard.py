"""A yard with jobs that report epochs."""

from __future__ import annotations

from typing import Any

from jobyard.engine.job_record import JobRecord
from jobyard.model.effects import Effect
from jobyard.model.events import (
    AttemptsMeasured,
    AttemptsProgressed,
    Progressed,
    Used,
    YieldRequested,
)
from jobyard.model.job import JobSpec, Reason, State
from jobyard.model.task import AttemptId
from jobyard.model.training import Elastic, Epoch, Progress, Training
from tests.builders import a_job
from tests.unit.engine.driving import Yard


def a_training(**spec: Any) -> JobSpec:
    spec.setdefault("training", Training(epochs=10))
    return a_job(**{"cpus": 0, "gpus": 1, **spec})


def report(done: int, total: int = 10, seconds: float = 60.0, **more: Any) -> Progress:
    history = tuple(Epoch(number + 1, seconds) for number in range(done))
    known: dict[str, Any] = {"can_yield": True, "epoch_seconds": seconds if done else 0.0, "history": history}
    return Progress(done, total, **{**known, "saved_at": 1.0 if done else 0.0, "restart_seconds": 5.0, **more})


class TrainingYard(Yard):
    def begin(self, job: JobRecord) -> AttemptId:
        """The job's first task runs; answers with its attempt."""
        attempts = self.active(job, State.STARTING)
        self.start(*attempts)
        return attempts[0]

    def progress(self, attempt: AttemptId, progress: Progress) -> list[Effect]:
        return self.apply(AttemptsProgressed((Progressed(attempt, progress),), self.now))

    def use(self, attempt: AttemptId, mib: int, percent: int | None = 50) -> list[Effect]:
        return self.apply(AttemptsMeasured(self.now, used=(Used(attempt, 100, mib, percent),)))

    def yield_now(self, job: JobRecord, **more: Any) -> list[Effect]:
        return self.apply(YieldRequested(job.id, Reason.PREEMPTED, "asked", self.now, **more))

    def stop_at_checkpoint(self, job: JobRecord, progress: Progress | None = None) -> None:
        attempts = self.active(job, State.STOPPING)
        self.finish(*attempts, exit_code=85, reason=Reason.PREEMPTED, progress=progress)


def an_elastic(least: int = 1, most: int = 4, **spec: Any) -> JobSpec:
    return a_training(gpus=least, elastic=Elastic(gpus=(least, most)), **spec)


def gpus_of(yard: Yard, job: JobRecord) -> list[int]:
    return [piece.index for record in job.slots.values() for piece in record.slot.placement.devices]
