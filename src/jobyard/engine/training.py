"""What does the engine know of jobs that report: how far they are, what they use, what it may ask of them?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from jobyard.engine.job_record import JobRecord
from jobyard.engine.profiles import Profile, kind_of
from jobyard.model.events import Used
from jobyard.model.job import Reason
from jobyard.model.node import Node
from jobyard.model.resources import Resources
from jobyard.model.task import Outcome, Task
from jobyard.model.training import YIELD_SECONDS, Progress, Size
from jobyard.scheduling.sharing import after_oom, reservation_mib
from jobyard.scheduling.snapshot import Running

MEMORY_REQUEUES_MOST = 5
RESTART_SECONDS = 30.0  # what a restart is believed to cost before one was seen
# More than this share of its estimate, and more than a minute, is an overrun: the first epochs are not like the rest.
OVERRUN = 1.2
OVERRUN_SECONDS = 60.0
_MEMORY_GROWTH = 2


class Trainings:
    """Profiles by kind of job, and what follows from them."""

    def __init__(self) -> None:
        self.profiles: dict[str, Profile] = {}

    def profile_of(self, job: JobRecord) -> Profile | None:
        return self.profiles.get(self._kind(job))

    def _kind(self, job: JobRecord) -> str:
        job.kind = job.kind or kind_of(job.spec)
        return job.kind

    # -- learning ------------------------------------------------------------------------------------------------------

    def learn_progress(self, job: JobRecord, task: Task, progress: Progress) -> bool:
        """Did it get a whole step further: an epoch, a checkpoint, the word that it can yield?"""
        known = job.progress.get(task.number)
        job.progress[task.number] = progress
        job.request = None
        if progress.epochs_done or progress.saved_at:
            job.checkpoint_nodes[task.number] = task.node
        profile = self.profiles.setdefault(self._kind(job), Profile())
        profile.learn(job.spec.training_size, progress)
        if progress.epoch_seconds and progress.epochs_total and (known is None or not known.epoch_seconds):
            # The first epoch corrects what the user guessed.
            left = progress.epochs_total - progress.epochs_done
            job.estimate_seconds = job.busy_seconds + (left + len(progress.history)) * progress.epoch_seconds
        return known is None or _milestones(known) != _milestones(progress)

    def learn_use(self, job: JobRecord, used: Used, at: float) -> None:
        job.used[used.attempt.task] = used
        if used.gpu_memory_mib:
            profile = self.profiles.setdefault(self._kind(job), Profile())
            profile.learn_use(used.memory_mib, used.gpu_memory_mib, used.gpu_percent)
        if used.gpu_percent == 0:
            job.idle_since.setdefault(used.attempt.task, at)
        else:
            job.idle_since.pop(used.attempt.task, None)

    def learn_end(self, job: JobRecord, task: Task, outcome: Outcome) -> None:
        if outcome.progress is not None:
            self.learn_progress(job, task, outcome.progress)
        if outcome.peak_gpu_memory_mib:
            profile = self.profiles.setdefault(self._kind(job), Profile())
            profile.learn_use(outcome.peak_memory_mib, outcome.peak_gpu_memory_mib)
        job.used.pop(task.number, None)
        job.idle_since.pop(task.number, None)

    # -- memory --------------------------------------------------------------------------------------------------------

    def resources(self, job: JobRecord, group: int, largest_device_mib: int) -> Resources:
        """What a task of this group asks for, by what it said and by what was measured."""
        ask = job.spec.groups[group].resources
        if not job.is_adaptive:
            return ask
        profile = self.profile_of(job)
        if ask.gpu_memory_mib and profile is not None and profile.peak_gpu_memory_mib:
            peak, steady = profile.peak_gpu_memory_mib, profile.is_steady
            ask = replace(ask, gpu_memory_mib=reservation_mib(ask.gpu_memory_mib, peak, steady, largest_device_mib))
        if ask.gpus and job.more_gpu_mib > ask.gpu_memory_mib:
            ask = replace(ask, gpu_memory_mib=job.more_gpu_mib)
        return replace(ask, memory_mib=max(ask.memory_mib, job.more_memory_mib)) if job.more_memory_mib else ask

    def give_more_memory(self, job: JobRecord, task: Task, outcome: Outcome, nodes: Iterable[Node]) -> bool:
        """It ran out of memory: can it have more, and try again?"""
        if job.memory_requeues >= MEMORY_REQUEUES_MOST or task.slot not in job.slots:
            return False
        placement = job.slots[task.slot].slot.placement
        if outcome.reason is Reason.OUT_OF_GPU_MEMORY and placement.devices:
            sizes = [device.memory_mib for node in nodes for device in node.devices]
            more = after_oom(placement.devices[0].memory_mib, outcome.peak_gpu_memory_mib, sizes)
            if more is None:
                return False
            job.more_gpu_mib = more
            profile = self.profiles.setdefault(self._kind(job), Profile())
            profile.learn_use(0, more)
        elif outcome.reason is Reason.OUT_OF_MEMORY:
            held = max(placement.resources.memory_mib, outcome.peak_memory_mib)
            most = max((node.memory_mib for node in nodes), default=0)
            if held >= most or not held:
                return False
            job.more_memory_mib = min(most, _MEMORY_GROWTH * held)
        else:
            return False
        job.memory_requeues += 1
        job.request = None
        return True


def _milestones(progress: Progress) -> tuple[object, ...]:
    return (progress.epochs_done, progress.can_yield, progress.saved_at, progress.epochs_total, progress.trouble)


# -- what may be asked of a job


def can_yield(job: JobRecord) -> bool:
    """Would it stop at a checkpoint if it were asked to? A gang is asked through its first task."""
    training = job.spec.training
    if training is not None and training.preemptible is not None:
        return training.preemptible
    if job.spec.gang:
        return tells_of_checkpoints(job, 0)
    return bool(job.slots) and all(tells_of_checkpoints(job, task.number) for task in job.active_tasks())


def tells_of_checkpoints(job: JobRecord, number: int) -> bool:
    progress = job.progress.get(0 if job.spec.gang else number)
    return progress is not None and progress.can_yield


def is_last_epoch(job: JobRecord) -> bool:
    """Is any of its tasks so near its end that it is left alone?"""
    running = (job.progress.get(0 if job.spec.gang else task.number) for task in job.active_tasks())
    return any(p.epochs_total is not None and p.epochs_done >= p.epochs_total - 1 for p in running if p is not None)


def yield_seconds(job: JobRecord) -> float:
    return job.spec.training.yield_seconds if job.spec.training else YIELD_SECONDS


def resumes_at(job: JobRecord, number: int, node: str) -> int | None:
    """The epochs that an attempt on this node can build on; None: it begins from nothing."""
    number = 0 if job.spec.gang else number
    progress = job.progress.get(number)
    if progress is None or job.checkpoint_nodes.get(number) != node:
        return None
    return progress.epochs_done


def pinned_to(job: JobRecord, nodes: Iterable[str]) -> str:
    """Where its checkpoint is, for jobs that start as a whole; empty: nowhere, or not known any more."""
    if not job.spec.gang and job.spec.size > 1:
        return ""
    node = job.checkpoint_nodes.get(0, "")
    return node if node in nodes else ""


def sizes_of(job: JobRecord, nodes: Iterable[Node]) -> tuple[Size, ...]:
    """What an elastic job may have now, smallest first."""
    elastic = job.spec.elastic
    if elastic is None:
        return ()
    if job.fixed_size is not None:
        return (job.fixed_size,)
    nodes = list(nodes)
    most_gpus = max((len(node.devices) for node in nodes), default=0)
    most_workers = sum(max(len(node.devices), node.cpu_millis // 1000) for node in nodes)
    return elastic.sizes(job.spec.training_size, most_gpus, most_workers)


def running(jobs: Iterable[JobRecord], trainings: Trainings, nodes: Iterable[Node], now: float) -> Iterator[Running]:
    """Those that may be asked to stop at a checkpoint."""
    nodes = list(nodes)
    for job in jobs:
        if job.stop is not None or not (job.progress or job.spec.training) or not can_yield(job):
            continue
        profile = trainings.profile_of(job) or Profile()
        restart = profile.checkpoint_seconds + (profile.restart_seconds or RESTART_SECONDS)
        yield Running(
            job.id,
            job.priority,
            job.age,
            tuple(job.slots),
            job.spec.training_size,
            sizes_of(job, nodes) if job.fixed_size is None else (),
            restart + max((_unsaved_seconds(job, task, now) for task in job.active_tasks()), default=0.0),
            restart,
            epochs_left(job),
            tuple((size, at.epoch_seconds) for size, at in profile.by_size.items() if at.epoch_seconds),
            is_last_epoch(job),
            job.is_yielding,
        )


def _unsaved_seconds(job: JobRecord, task: Task, now: float) -> float:
    """What a task would do again. One that stops at its next checkpoint loses nothing."""
    if tells_of_checkpoints(job, task.number):
        return 0.0
    progress = job.progress.get(task.number)
    return max(0.0, now - max(task.started_at or now, progress.saved_at if progress else 0.0))


# -- how long it takes


def epochs_left(job: JobRecord) -> float | None:
    asked = job.spec.training.epochs if job.spec.training else None
    known = [p for p in job.progress.values() if p.epochs_total or asked]
    if not known:
        return asked
    return float(sum(max(0, (p.epochs_total or asked or 0) - p.epochs_done) for p in known))


def busy_seconds(job: JobRecord, now: float) -> float:
    """Of all its attempts together, those that run included."""
    return job.busy_seconds + sum(max(0.0, now - task.started_at) for task in job.active_tasks() if task.started_at)


def has_overrun(job: JobRecord, now: float) -> bool:
    if job.estimate_seconds is None:
        return False
    return busy_seconds(job, now) > max(OVERRUN * job.estimate_seconds, job.estimate_seconds + OVERRUN_SECONDS)


def gpu_seconds(job: JobRecord, profile: Profile | None, now: float) -> float | None:
    """What it will still take, where that is known; a job that overran its estimate is not believed any more."""
    if has_overrun(job, now):
        return None
    size, left = job.spec.training_size, epochs_left(job)
    seconds = profile.epoch_seconds(size) if profile else None
    if left is not None and seconds is not None:
        return left * seconds * max(1, size.devices)
    if job.estimate_seconds is not None:
        return max(0.0, job.estimate_seconds - busy_seconds(job, now)) * max(1, size.devices)
    return None
