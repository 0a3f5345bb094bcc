"""Training commands: which events do yield and scale requests become? Checked against the state, as in `commands`."""

from __future__ import annotations

from jobyard.engine.job_record import JobRecord
from jobyard.engine.queries import member_of, why_never
from jobyard.engine.training import is_last_epoch, obeys_its_user, pinned_to
from jobyard.engine.yard_state import YardState
from jobyard.errors import UserError
from jobyard.model.events import ScaleRequested, YieldRequested
from jobyard.model.job import Reason
from jobyard.model.training import ALL, Elastic, Size
from jobyard.server.commands import check_gang
from jobyard.server.finding import find_live_job
from jobyard.server.rounds import Command
from jobyard.wire.requests import ScaleJob


def yield_job(selector: str, by: str = "") -> Command[str]:
    """Stop at the next checkpoint and wait again, behind the others. Asking twice is no error."""

    def command(state: YardState, now: float) -> tuple[list[YieldRequested], str]:
        job = find_live_job(state, selector)
        _refuse_ended(job)
        if job.is_yielding:
            return [], job.id
        if not job.tasks.active:
            raise UserError(
                f"job {job.number} waits already: nothing of it runs; `yard cancel {job.number}` takes it away"
            )
        if not obeys_its_user(job):
            raise UserError(
                f"job {job.number} has not said that it stops at a checkpoint; "
                f"`yard cancel {job.number}` ends it without one"
            )
        if is_last_epoch(job):
            raise UserError(f"job {job.number} is in its last epoch, which is never stopped; wait for it")
        message = f"stopped at a checkpoint by {by or 'the user'}"
        return [YieldRequested(job.id, Reason.PREEMPTED, message, now, to_the_back=True, by=by)], job.id

    return command


def scale_job(selector: str, request: ScaleJob, by: str = "") -> Command[str]:
    """Give an elastic job a size that it keeps, or let the scheduler choose again."""

    def command(state: YardState, now: float) -> tuple[list[ScaleRequested], str]:
        job = find_live_job(state, selector)
        _refuse_ended(job)
        elastic = job.spec.elastic
        if elastic is None:
            raise UserError(
                f"job {job.number} has one size; submit it with a range, as in --gpus 1..8 or --workers 1..4"
            )
        if request.auto and any(each is not None for each in (request.size, request.gpus, request.workers)):
            raise UserError(f"job {job.number}: auto and a size were asked for; say one of them")
        size = None if request.auto else _size_of(job, elastic, request)
        if size not in (None, job.spec.training_size):
            _check_size(state, job, size)
        return [ScaleRequested(job.id, size, now, by)], job.id

    return command


def _check_size(state: YardState, job: JobRecord, size: Size) -> None:
    if job.tasks.active and not obeys_its_user(job):
        raise UserError(
            f"job {job.number} runs and has not said that it stops at a checkpoint, so it cannot change its size now"
        )
    if job.tasks.active and is_last_epoch(job):
        raise UserError(f"job {job.number} is in its last epoch, which is never stopped; wait for it")
    sized = job.spec.sized(size)
    on = pinned_to(job, state.places.nodes) or sized.on
    if why := why_never(state, [member_of(sized, 0)], on, sized.policy.overcommit, sized.cluster):
        raise UserError(f"job {job.number} can never have {size}: {why}")
    if sized.gang:
        check_gang(state, sized)


def _refuse_ended(job: JobRecord) -> None:
    if job.is_final:
        raise UserError(
            f"job {job.number} has ended ({job.state.value.lower()}); only a job that has not can be changed"
        )
    if job.stop is not None:
        raise UserError(
            f"job {job.number} is being stopped ({job.stop[1] or job.stop[0]}); it cannot be changed any more"
        )


def _size_of(job: JobRecord, elastic: Elastic, request: ScaleJob) -> Size:
    said = [value for value in (request.size, request.gpus, request.workers) if value is not None]
    if len(said) != 1 and not (request.gpus is not None and request.workers is not None and request.size is None):
        raise UserError(f"job {job.number}: say one size: a number, gpus, workers, or auto")
    gpus, workers = request.gpus, request.workers
    if request.size is not None:
        if elastic.gpus and elastic.workers:
            raise UserError(f"job {job.number} can change its GPUs and its workers; say --gpus N or --workers N")
        gpus, workers = (request.size, None) if elastic.gpus else (None, request.size)
    now = job.spec.training_size
    return Size(
        now.workers if workers is None else _within(job, elastic.workers, workers, "worker"),
        now.gpus if gpus is None else _within(job, elastic.gpus, gpus, "GPU"),
    )


def _within(job: JobRecord, span: tuple[int, int] | None, number: int, what: str) -> int:
    if span is None:
        raise UserError(
            f"job {job.number} cannot change how many {what}s it has; it was not submitted with a range of them"
        )
    low, high = span
    if not low <= number <= high:
        known = f"{low} or more {what}s" if high >= ALL else f"{low} to {high} {what}s"
        raise UserError(f"job {job.number} can have {known}, not {number}; choose one of those")
    return number
