"""Job metadata: what does the other system record of a job, and in which orders does it list jobs?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from jobyard.compat.genai.checkpoint_reports import Report, report_in
from jobyard.model.job import Reason, State
from jobyard.wire.views import JobView

COMPLETED = "completed"
STATUSES = {
    State.PENDING: "scheduled",
    State.STARTING: "scheduled",
    State.RUNNING: "running",
    State.STOPPING: "running",
    State.SUSPENDED: "scheduled",
    State.SUCCEEDED: COMPLETED,
    State.FAILED: "failed",
    State.CANCELLED: "deleted",
}
MOVING = (Reason.RESIZING, Reason.PREEMPTED)  # it stops at a checkpoint, or has just done so
ENDED = frozenset({COMPLETED, "failed", "deleted"})
Identity = tuple[str, str, int]  # a name, the yard's id, the arrival: names are used again, and not all have an id


@dataclass(frozen=True)
class JobMetadata:
    """GPUs are those of one replica. `key` and the fields after it are internal, and not shown."""

    job_name: str
    gpu_req: int
    gpu_lim: int
    gpu_assigned: int  # 0: it waits
    replicas: int
    total_epochs: float
    job_arrival_time: int
    last_checkpoint_time: float  # before the first checkpoint: the arrival time
    completed_epochs: float
    time_bw_checkpoints: float | None
    status: str
    restarts: int
    key: str = ""  # the yard's id of it; empty: it is not the yard's
    is_resizing: bool = False
    is_marked: bool = False  # for a job that is not the yard's: our annotation with its next size is still there
    has_saved: bool = False
    message: str = ""

    @property
    def identity(self) -> Identity:
        return self.job_name, self.key, self.job_arrival_time

    @property
    def is_ours(self) -> bool:
        return bool(self.key)

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def missing(self) -> int:
        return self.gpu_lim - self.gpu_assigned

    def shown(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in SHOWN}


SHOWN = fields(JobMetadata)[:12]


def record_of(view: JobView, most_gpus: int) -> JobMetadata:
    """`view` with its training or, of a job that does not train, its groups. `most_gpus` stands for "all there are".

    What the job told of its checkpoints, to whichever process, counts where it is newer than what the yard saw.
    """
    training = view.training
    gpus = training.gpus if training else sum(group.resources.gpus for group in view.groups)
    low, high = (training.gpus_range if training else None) or (gpus, gpus)
    arrival = int(view.submitted_at)
    record = JobMetadata(
        job_name=view.name,
        gpu_req=low,
        gpu_lim=max(low, min(high, most_gpus)) if high > low else high,
        gpu_assigned=gpus if view.started_at is not None and view.state is not State.PENDING else 0,
        replicas=training.workers if training else sum(group.count for group in view.groups) or 1,
        total_epochs=(training.epochs_total if training else None) or 0,
        job_arrival_time=arrival,
        last_checkpoint_time=(training.saved_at if training else None) or arrival,
        completed_epochs=training.epochs_done if training else 0,
        time_bw_checkpoints=training.epoch_seconds if training and training.saved_at else None,
        status=STATUSES[view.state],
        restarts=training.restarts if training else 0,
        key=view.id,
        is_resizing=not view.state.is_final and (view.reason in MOVING or view.state is State.STOPPING),
        has_saved=bool(training and training.saved_at),
        message=view.message,
    )
    return with_report(record, report_in(view.annotations))


def with_report(record: JobMetadata, report: Report | None) -> JobMetadata:
    """A job's own report counts where it is newer than what the yard knows."""
    if report is None or report.at < record.last_checkpoint_time:
        return record
    between = None if report.before is None else report.at - report.before
    return replace(
        record,
        last_checkpoint_time=report.at,
        time_bw_checkpoints=record.time_bw_checkpoints if between is None else between,
        completed_epochs=max(record.completed_epochs, report.completed_epochs),
        total_epochs=report.total_epochs or record.total_epochs,
    )


# -- lists, in the original's orders; those that have ended are in none of them


def by_arrival(records: Iterable[JobMetadata]) -> list[JobMetadata]:
    return sorted((each for each in records if not each.has_ended), key=lambda each: each.job_arrival_time)


def by_checkpoint(records: Iterable[JobMetadata]) -> list[JobMetadata]:
    """The job with the newest checkpoint first: it loses least."""
    return sorted(by_arrival(records), key=lambda each: each.last_checkpoint_time, reverse=True)


def by_checkpoint_limit(records: Iterable[JobMetadata]) -> list[JobMetadata]:
    return [each for each in by_checkpoint(records) if each.missing > 0]


def by_difference(records: Iterable[JobMetadata], missing: int) -> list[JobMetadata]:
    return [each for each in by_checkpoint(records) if each.missing == missing]


def scale_down(records: Iterable[JobMetadata], spare: int) -> list[JobMetadata]:
    return [each for each in by_checkpoint(records) if each.gpu_assigned - each.gpu_req >= spare]


def candidates(records: Iterable[JobMetadata]) -> list[JobMetadata]:
    """Jobs to grow: running ones with less than they could have, the newest checkpoint first, then the oldest job.

    A waiting job is no candidate, and a job that is being resized grows already.
    """
    running = [each for each in records if each.gpu_assigned and not each.is_resizing]
    return by_checkpoint_limit(running) or by_arrival(running)[:1]
