"""Estimates: how long will a training still take, and has it taken longer than was expected?"""

from __future__ import annotations

from collections.abc import Callable

from jobyard.engine.job_record import JobRecord
from jobyard.engine.profiles import Profile

# More than this share of its estimate, and more than a minute, is an overrun: the first epochs are not like the rest.
OVERRUN = 1.2
OVERRUN_SECONDS = 60.0


def epochs_left(job: JobRecord) -> float | None:
    asked = job.spec.training.epochs if job.spec.training else None
    known = [p for p in job.training.progress.values() if p.epochs_total or asked]
    if not known:
        return asked
    return float(sum(max(0, (p.epochs_total or asked or 0) - p.epochs_done) for p in known))


def busy_seconds(job: JobRecord, now: float) -> float:
    """Of all its attempts, those that run included; the tasks of a gang are one."""
    begun = [task.started_at for task in job.active_tasks() if task.started_at is not None]
    running = sum(max(0.0, now - started_at) for started_at in begun)
    return (job.use.busy_seconds + running) / (job.spec.size if job.spec.gang else 1)


def has_overrun(job: JobRecord, now: float) -> bool:
    estimate = job.training.estimate_seconds
    if estimate is None:
        return False
    return busy_seconds(job, now) > max(OVERRUN * estimate, estimate + OVERRUN_SECONDS)


def trusted_rest(job: JobRecord, profile_of: Callable[[JobRecord], Profile | None], now: float) -> float | None:
    """GPU seconds by which a short job goes first; None: not known, or it was sent to the back of the queue."""
    if job.spec.training is None or job.age != job.number:
        return None
    return _gpu_seconds(job, profile_of(job), now)


def _gpu_seconds(job: JobRecord, profile: Profile | None, now: float) -> float | None:
    """What it will still take, where that is known; a job that overran its estimate is not believed any more."""
    if has_overrun(job, now):
        return None
    size, left = job.spec.training_size, epochs_left(job)
    seconds = profile.epoch_seconds(size) if profile else None
    if left is not None and seconds is not None:
        return left * seconds * max(1, size.devices)
    if job.training.estimate_seconds is not None:
        return max(0.0, job.training.estimate_seconds - busy_seconds(job, now)) * max(1, size.devices)
    return None
