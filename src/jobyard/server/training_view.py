"""Training view: how far is a training, what was measured of it, and what does it cost?"""

from __future__ import annotations

import math
import time

from jobyard.engine.estimates import has_overrun
from jobyard.engine.job_record import JobRecord
from jobyard.engine.profiles import Profile
from jobyard.engine.training import can_yield, idle_seconds
from jobyard.engine.yard_state import YardState
from jobyard.model.training import ALL, Elastic, Progress
from jobyard.server.eta import epoch_seconds, slowest_progress, training_eta
from jobyard.wire.views import SizeView, TrainingView


def training_view(state: YardState, job: JobRecord, *, detail: bool = True) -> TrainingView | None:
    """None for a job that neither is said to train nor reports."""
    spec = job.spec
    if not (job.training.progress or job.training.steps) and spec.training is None and spec.elastic is None:
        return None
    now = time.time()
    profile = state.trainings.profile_of(job) or Profile()
    progress = slowest_progress(job)
    seconds = epoch_seconds(job, profile, progress)
    has_said_nothing = job.is_final and not job.training.progress  # it may have done them all without a report
    asked = spec.training.epochs if spec.training and not has_said_nothing else None
    total = progress.epochs_total or asked
    eta = training_eta(job, progress, seconds)
    used = [use.gpu_memory_mib for use in job.use.used.values() if use.gpu_memory_mib]
    return TrainingView(
        epochs_done=_epochs_seen(progress, total),
        epochs_total=total,
        epoch_seconds=seconds,
        step_seconds=progress.step_seconds or None,
        steps=progress.steps,
        steps_per_epoch=spec.steps_per_epoch,
        percent=progress.percent,
        eta_seconds=eta.likely,
        eta_low_seconds=eta.low,
        eta_high_seconds=eta.high,
        estimated_seconds=job.training.estimate_seconds,
        is_over_estimate=has_overrun(job, job.times.finished_at or now),
        size=str(spec.training_size) if spec.elastic or spec.training_size.devices else "",
        sizes=_range(spec.elastic),
        by_size=tuple(
            SizeView(str(size), at.epoch_seconds, at.step_seconds) for size, at in sorted(profile.by_size.items())
        )
        if detail
        else (),
        gpu_percent=profile.gpu_percent,
        gpu_memory_mib=max(used, default=None),
        peak_gpu_memory_mib=profile.peak_gpu_memory_mib or None,
        checkpoint_seconds=profile.checkpoint_seconds or None,
        restart_seconds=profile.restart_seconds or None,
        can_yield=can_yield(job),
        preemptions=job.preemption.count,
        resizes=job.preemption.resizes,
        metrics=dict(progress.metrics),
        history=progress.history if detail else (),
        trouble=progress.trouble or job.preemption.missed_deadline,
        idle_seconds=idle_seconds(job, now),
        kind=job.training.profile_key,
        log_dir=spec.training.log_dir if spec.training else "",
        workers=spec.training_size.workers,
        gpus=spec.training_size.gpus,
        gpus_range=spec.elastic.gpus if spec.elastic else None,
        saved_at=progress.saved_at or None,
        restarts=max(0, job.task(0).attempt - 1),
    )


def _epochs_seen(progress: Progress, total: int | None) -> int:
    """As counted; where a job tells its share only, as Hugging Face's Trainer does by itself, by that.

    For people: what a next attempt begins after is another question, which only checkpoints answer.
    """
    if progress.epochs_done or progress.history or progress.percent is None:
        return progress.epochs_done
    share = (total or 0) * progress.percent / 100
    told = progress.metrics.get("epoch", share)  # its loss may be logged once in several epochs, or never
    seen = int(max(told if math.isfinite(told) else 0.0, share) + 1e-6)
    return min(seen, total) if total else seen


def _range(elastic: Elastic | None) -> str:
    if elastic is None:
        return ""
    named = [(elastic.workers, "workers"), (elastic.gpus, "GPUs")]
    return ", ".join(f"{span[0]}..{'all' if span[1] >= ALL else span[1]} {name}" for span, name in named if span)
