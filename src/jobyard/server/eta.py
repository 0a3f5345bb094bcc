"""ETA: when will a job be over? Of training by its epochs, of other jobs by how fast their tasks end."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from jobyard.engine.estimates import epochs_left
from jobyard.engine.job_record import JobRecord
from jobyard.engine.profiles import Profile
from jobyard.model.training import Progress
from jobyard.scheduling.elasticity import predict_epoch_seconds


class Eta(NamedTuple):
    """Seconds from now; None: not known."""

    low: float | None = None
    likely: float | None = None
    high: float | None = None


def eta_seconds(job: JobRecord, profile_of: Callable[[JobRecord], Profile | None]) -> float | None:
    """Of training by its epochs; else by the rate that is seen. None rather than something wrong."""
    if job.training.progress:
        progress = slowest_progress(job)
        return training_eta(job, progress, epoch_seconds(job, profile_of(job) or Profile(), progress)).likely
    if job.is_final or not job.slots:
        return None
    now = time.time()
    left = job.use.end_rate.seconds_left(job.tasks.unfinished, len(job.slots), now)
    mean = max(job.use.mean_seconds.values(), default=0.0)
    if left is None or left >= mean:
        return left
    # Of the last ones no more end together: the newest still takes its time.
    newest = max((task.started_at for task in job.active_tasks() if task.started_at is not None), default=now)
    return max(left, mean - (now - newest))


def slowest_progress(job: JobRecord) -> Progress:
    """Of its tasks that have reported, that of the one with the fewest epochs done."""
    numbers = job.training.progress.keys() | job.training.steps.keys()
    told = [found for number in numbers if (found := job.training.progress_now(number))]
    return min(told, key=lambda each: each.epochs_done, default=Progress())


def epoch_seconds(job: JobRecord, profile: Profile, progress: Progress) -> float | None:
    """As it reports now, as it was measured at this size, by its steps, or predicted from other sizes."""
    own = job.spec.training_size
    measured = [(size, at.epoch_seconds) for size, at in profile.by_size.items() if at.epoch_seconds]
    seconds = progress.epoch_seconds if job.slots else None
    seconds = seconds or dict(measured).get(own) or progress.step_seconds * (job.spec.steps_per_epoch or 0)
    return seconds or predict_epoch_seconds(measured, own) or None


def training_eta(job: JobRecord, progress: Progress, seconds_of_epoch: float | None) -> Eta:
    """Epochs that remain, times how long they took; the range is that of the epochs seen."""
    if job.is_final or not job.slots:
        return Eta()
    left = epochs_left(job)
    if left is not None and not job.spec.gang and job.spec.size > 1:
        # In an array: tasks without a report count in full, and slots work in parallel.
        silent = job.tasks.unfinished - sum(not job.task(number).state.is_final for number in job.training.progress)
        left = (left + silent * (progress.epochs_total or 0)) / len(job.slots)
    if left is None or not seconds_of_epoch:
        return Eta(likely=progress.remaining_seconds)
    seen = sorted(epoch.seconds for epoch in progress.history) or [seconds_of_epoch]
    fast, slow = seen[len(seen) // 10], seen[-1 - len(seen) // 10]
    return Eta(left * fast, left * median([fast, seconds_of_epoch, slow]), left * slow)
