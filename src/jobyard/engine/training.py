"""Training state: how far are jobs that report, what do they use, and can they be preempted or resized?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from jobyard.engine.blaming import blaming
from jobyard.engine.estimates import epochs_left
from jobyard.engine.job_record import JobRecord
from jobyard.engine.profiles import Profile, kind_of
from jobyard.model.job import Reason
from jobyard.model.node import Node, cluster_of, place_of
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import Outcome, Task
from jobyard.model.training import IDLE_GPU_SECONDS, YIELD_SECONDS, Progress, Size
from jobyard.model.units import show_mib
from jobyard.scheduling.devices import suits
from jobyard.scheduling.sharing import after_oom, reservation_mib
from jobyard.scheduling.snapshot import Running
from jobyard.scheduling.where import where_of

MEMORY_REQUEUES_MOST = 5
PROFILES_MOST = 1000  # kinds of jobs: half a megabyte
RESTART_SECONDS = 30.0  # the assumed cost of a restart before one was measured
_MEMORY_GROWTH = 2


class Trainings:
    """Profiles by kind of job, and what follows from them."""

    def __init__(self) -> None:
        self.profiles: dict[str, Profile] = {}
        self.storages: set[str] = set()  # clusters with storage that outlives pods

    def keeps_checkpoints(self, cluster: str, does_so: bool) -> None:
        (self.storages.add if does_so else self.storages.discard)(cluster)

    def is_kept_at(self, node: str) -> bool:
        """Does a checkpoint that is written there outlive its task?"""
        cluster = cluster_of(node)
        return not cluster or cluster in self.storages

    def can_go_on(self, job: JobRecord, number: int, node: str) -> bool:
        """Does what a task reported still hold for an attempt there? Not if its checkpoint is elsewhere, or gone."""
        return self.is_kept_at(node) and job.training.checkpoint_places.get(number) in (None, place_of(node))

    def profile_of(self, job: JobRecord) -> Profile | None:
        return self.profiles.get(self._kind(job))

    def _kind(self, job: JobRecord) -> str:
        job.training.profile_key = job.training.profile_key or kind_of(job.spec)
        return job.training.profile_key

    def _profile_that_learns(self, job: JobRecord) -> Profile:
        """That of its kind, from now on the newest. Of too many the one that has learned nothing for longest goes."""
        kind = self._kind(job)
        profile = self.profiles.pop(kind) if kind in self.profiles else Profile()
        self.profiles[kind] = profile
        while len(self.profiles) > PROFILES_MOST:
            del self.profiles[next(iter(self.profiles))]
        return profile

    # -- learning ------------------------------------------------------------------------------------------------------

    def learn_progress(self, job: JobRecord, task: Task, progress: Progress) -> bool:
        """Is there a new milestone: an epoch, a checkpoint, or that it can be preempted?"""
        known = job.training.progress.get(task.number)
        job.training.progress[task.number] = progress = progress.after(known)
        job.training.steps.pop(task.number, None)
        if (progress.epochs_done or progress.saved_at) and self.is_kept_at(task.node):
            job.training.checkpoint_places[task.number] = place_of(task.node)
        profile = self._profile_that_learns(job)
        before = known.epochs_done if known else 0
        profile.learn(job.spec.training_size, progress, max(0, progress.epochs_done - before))
        if progress.epoch_seconds and progress.epochs_total and (known is None or not known.epoch_seconds):
            # The first epoch corrects what the user guessed.
            left = progress.epochs_total - progress.epochs_done
            ahead = (left + len(progress.history)) * progress.epoch_seconds
            job.training.estimate_seconds = job.use.busy_seconds + ahead
        return known is None or known.milestones != progress.milestones

    def learn_use(self, job: JobRecord, memory_mib: int, gpu_memory_mib: int, gpu_percent: int | None) -> None:
        profile = self._profile_that_learns(job)
        profile.learn_use(memory_mib, gpu_memory_mib, gpu_percent)

    def learn_end(self, job: JobRecord, task: Task, outcome: Outcome) -> None:
        if outcome.peak_gpu_memory_mib:
            profile = self._profile_that_learns(job)
            profile.learn_use(outcome.peak_memory_mib, outcome.peak_gpu_memory_mib)
            if outcome.progress is not None:  # its peak covers all of its epochs
                profile.epochs = max(profile.epochs, len(outcome.progress.history))
        if outcome.progress is not None:
            self.learn_progress(job, task, outcome.progress)
        job.use.forget_measured(task.number)
        job.training.steps.pop(task.number, None)

    # -- memory --------------------------------------------------------------------------------------------------------

    def resources(self, job: JobRecord, group: int, largest_device_mib: int) -> Resources:
        """What a task of this group asks for, by what it said and by what was measured."""
        ask = job.spec.groups[group].resources
        if not job.is_adaptive:
            return ask
        profile = self.profile_of(job)
        if ask.gpu_memory_mib and profile is not None and profile.peak_gpu_memory_mib:
            peak, steady = profile.peak_gpu_memory_mib, profile.is_steady
            mib = reservation_mib(ask.gpu_memory_mib, peak, steady, largest_device_mib)
            ask = replace(ask, gpu_memory_mib=mib if steady else max(mib, profile.least_gpu_mib))
        elif ask.gpu_memory_mib and profile is not None:
            ask = replace(ask, gpu_memory_mib=max(ask.gpu_memory_mib, profile.least_gpu_mib))
        if ask.gpus and job.memory.gpu_mib and not ask.shares_gpus:  # a task that was alone on its device stays so
            ask = replace(ask, least_device_mib=job.memory.gpu_mib)
        elif ask.gpus and job.memory.gpu_mib > ask.gpu_memory_mib:
            ask = replace(ask, gpu_memory_mib=job.memory.gpu_mib)
        return replace(ask, memory_mib=max(ask.memory_mib, job.memory.memory_mib)) if job.memory.memory_mib else ask

    def give_more_memory(self, job: JobRecord, task: Task, outcome: Outcome, nodes: Iterable[Node]) -> bool:
        """It ran out of memory: can it have more, and try again?"""
        if task.slot not in job.slots or job.spec.kubernetes.manifest:  # a user's own object is sent unchanged
            return False
        placement, nodes = job.slots[task.slot].slot.placement, _allowed(job, task, nodes)
        if outcome.reason is Reason.OUT_OF_GPU_MEMORY and placement.devices and not job.spec.cluster:
            held, given = _held_mib(placement), job.memory.gpu_mib
            more = _more_gpu_mib(job, placement, outcome.peak_gpu_memory_mib, nodes)
        elif outcome.reason is Reason.OUT_OF_MEMORY:
            held, given = max(placement.resources.memory_mib, outcome.peak_memory_mib), job.memory.memory_mib
            most = max((node.memory_mib for node in nodes), default=0)
            more = min(most, _MEMORY_GROWTH * held) if 0 < held < most else None
        else:
            return False
        if held < given:
            return True  # it ran with less than the job gets by now
        if more is None or job.memory.requeues >= MEMORY_REQUEUES_MOST:
            return False
        if outcome.reason is Reason.OUT_OF_MEMORY:
            job.memory.memory_mib = more
        else:
            job.memory.gpu_mib = more
            self._profile_that_learns(job).least_gpu_mib = more
        job.memory.requeues += 1
        return True

    def needs_larger_gpu(self, job: JobRecord, task: Task, outcome: Outcome, nodes: Iterable[Node]) -> str:
        """A sentence if it ran out of memory with whole GPUs, and there are no larger ones. Empty: not so."""
        if outcome.reason is not Reason.OUT_OF_GPU_MEMORY or task.slot not in job.slots or job.spec.cluster:
            return ""
        placement, nodes = job.slots[task.slot].slot.placement, list(nodes)
        here = {device.index: device for node in nodes if node.id == placement.node for device in node.devices}
        whole = [here[each.index] for each in placement.devices if each.index in here]
        if not whole or any(each.memory_mib < here[each.index].memory_mib for each in placement.devices):
            return ""
        if _more_gpu_mib(job, placement, outcome.peak_gpu_memory_mib, _allowed(job, task, nodes)) is not None:
            return ""
        least = min(whole, key=lambda device: device.memory_mib)
        kind = f"{least.name} ({show_mib(least.memory_mib)}{', fake' if least.fake else ''})"
        return (
            f"it needs more GPU memory than a {kind} has; ask for a larger GPU with --min-gpu-mem, or for less of it, "
            "as with a smaller batch"
        )


def given_more(job: JobRecord) -> str:
    """A sentence that it ran out of memory and was given more; empty: it did not."""
    if not job.memory.requeues:
        return ""
    found = [(job.memory.memory_mib, "memory", "--mem"), (job.memory.gpu_mib, "GPU memory", "--gpu-mem")]
    given = [(f"{show_mib(mib)} of {kind}", flag) for mib, kind, flag in found if mib]
    times = f"{job.memory.requeues} times" if job.memory.requeues > 1 else "once"
    amounts, flags = (" and ".join(words) for words in zip(*given, strict=True))
    return f"it ran out of memory {times}, and was given {amounts}; {flags} gives it that from its start"


def _allowed(job: JobRecord, task: Task, nodes: Iterable[Node]) -> list[Node]:
    """Those of them that its submitter lets it have."""
    where = where_of(job.spec, job.spec.groups[job.spec.place_of(task.number).group])
    return [node for node in nodes if where.has_labels(node)]


def _held_mib(placement: Placement) -> int:
    """On the device where it had least."""
    return min(piece.memory_mib for piece in placement.devices)


def _more_gpu_mib(job: JobRecord, placement: Placement, peak_mib: int, nodes: list[Node]) -> int | None:
    """On the node of its checkpoint, if possible: a larger device elsewhere loses its progress. None: there is no more.

    For a task that is alone on its devices: the size of the next larger device.
    """
    held = _held_mib(placement)
    beside = _sizes([node for node in nodes if node.id == placement.node], placement)
    for sizes in (beside if pinned_to(job, [placement.node]) else [], _sizes(nodes, placement)):
        if placement.resources.shares_gpus:
            more = after_oom(held, peak_mib, sizes)
        else:
            more = min((size for size in sizes if size > held), default=None)
        if more is not None:
            return more
    return None


def _sizes(nodes: Iterable[Node], placement: Placement) -> list[int]:
    """How much memory the devices may have of which a node can give as many as it has now, of the same kind."""
    found, ask = set(), placement.resources
    for node in nodes:
        fitting = [device.memory_mib for device in node.devices if suits(device, ask)]
        found |= set(sorted(fitting, reverse=True)[len(placement.devices) - 1 :])
    return sorted(found)


# -- what may be asked of a job


def can_yield(job: JobRecord) -> bool:
    """May it be asked to stop at a checkpoint? If its submitter said so, or it did. A gang speaks by its first task."""
    training = job.spec.training
    if training is not None and training.preemptible is not None:
        return training.preemptible
    # All tasks of an array would stop for one of them, and restart where their checkpoints are not.
    return (job.spec.gang or job.spec.size == 1) and tells_of_checkpoints(job, 0)


def obeys_its_user(job: JobRecord) -> bool:
    """Would it stop for its own user? Also if other jobs may not preempt it."""
    return can_yield(job) or all(tells_of_checkpoints(job, task.number) for task in job.active_tasks())


def tells_of_checkpoints(job: JobRecord, number: int) -> bool:
    progress = job.training.progress.get(0 if job.spec.gang else number)
    return progress is not None and progress.can_yield


def is_last_epoch(job: JobRecord) -> bool:
    """Is any of its tasks so near its end that it is left alone?"""
    running = (job.training.progress.get(0 if job.spec.gang else task.number) for task in job.active_tasks())
    return any(p.epochs_total is not None and p.epochs_done >= p.epochs_total - 1 for p in running if p is not None)


def idle_seconds(job: JobRecord, now: float) -> float | None:
    """For how long all of its GPUs have done nothing, if that is too long."""
    if not job.use.idle_since or len(job.use.idle_since) < job.tasks.active:
        return None
    idle = now - max(job.use.idle_since.values())
    most = job.spec.training.idle_gpu_seconds if job.spec.training else IDLE_GPU_SECONDS
    return idle if idle >= most else None


def yield_seconds(job: JobRecord, profile: Profile | None) -> float:
    """How long it may take to its next checkpoint: as the submitter said, or two of its epochs."""
    if job.spec.training is not None and job.spec.training.yield_seconds is not None:
        return job.spec.training.yield_seconds
    epoch = profile.epoch_seconds(job.spec.training_size) if profile else None
    return max(YIELD_SECONDS, 2 * (epoch or 0.0))


def resumes_at(job: JobRecord, number: int, node: str) -> int | None:
    """The epochs that an attempt on this node can build on; None: it begins from nothing."""
    if job.spec.gang:
        number, node = 0, job.task(0).node  # the others get it from there
    progress = job.training.progress.get(number)
    if progress is None or job.training.checkpoint_places.get(number) != place_of(node):
        return None
    return progress.epochs_done


def pinned_to(job: JobRecord, nodes: Iterable[str]) -> str:
    """The machine where its checkpoint is, for jobs that start as a whole; empty: none, or not known any more.

    One in the storage of a cluster can be read on all of its nodes.
    """
    if not job.spec.gang and job.spec.size > 1:
        return ""
    node = job.training.checkpoint_places.get(0, "")
    return node if node in nodes else ""


class Bounds(NamedTuple):
    """What the nodes of a yard could give at most."""

    device_mib: int  # of the largest device
    gpus: int  # of one node
    workers: int

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> Bounds:
        nodes = list(nodes)
        return cls(
            max((device.memory_mib for node in nodes for device in node.devices), default=0),
            max((len(node.devices) for node in nodes), default=0),
            sum(max(len(node.devices), node.cpu_millis // 1000) for node in nodes),
        )


def sizes_of(job: JobRecord, bounds: Bounds) -> tuple[Size, ...]:
    """What an elastic job may have now, smallest first."""
    elastic = job.spec.elastic
    if elastic is None:
        return ()
    if job.training.fixed_size is not None:
        return (job.training.fixed_size,)
    return elastic.sizes(job.spec.training_size, bounds.gpus, bounds.workers)


def running(
    jobs: Iterable[JobRecord], trainings: Trainings, bounds_of: Callable[[str], Bounds], now: float
) -> Iterator[Running]:
    """Those that may be asked to stop at a checkpoint."""
    for job in jobs:
        with blaming(job.id):
            found = _running(job, trainings, bounds_of, now)
        if found is not None:
            yield found


def _running(job: JobRecord, trainings: Trainings, bounds_of: Callable[[str], Bounds], now: float) -> Running | None:
    if job.stop is not None or not (job.training.progress or job.spec.training) or not can_yield(job):
        return None
    is_kept = all(trainings.is_kept_at(record.slot.placement.node) for record in job.slots.values())
    if not is_kept and not (job.spec.training and job.spec.training.preemptible):
        return None  # it would lose everything, and its submitter did not allow that
    profile = trainings.profile_of(job) or Profile()
    restart = profile.checkpoint_seconds + (profile.restart_seconds or RESTART_SECONDS)
    is_in_time = (profile.epoch_seconds(job.spec.training_size) or 0.0) <= yield_seconds(job, profile)
    resizable = is_in_time and not job.preemption.missed_deadline and job.training.fixed_size is None
    return Running(
        job.id,
        job.priority,
        job.age,
        tuple(job.slots),
        job.spec.training_size,
        sizes_of(job, bounds_of(job.spec.cluster)) if resizable else (),
        restart + _lost_seconds(job, now, is_in_time and is_kept),
        restart,
        epochs_left(job),
        tuple((size, at.epoch_seconds) for size, at in profile.by_size.items() if at.epoch_seconds),
        is_last_epoch(job),
        job.is_yielding,
        where_of(job.spec, job.spec.groups[0]),
        number=job.number,
    )


def _lost_seconds(job: JobRecord, now: float, is_in_time: bool) -> float:
    return max((_unsaved_seconds(job, task, now, is_in_time) for task in job.active_tasks()), default=0.0)


def _unsaved_seconds(job: JobRecord, task: Task, now: float, is_in_time: bool) -> float:
    """Work that a preempted task would repeat. One that stops at its next checkpoint, in time, loses nothing."""
    if is_in_time and not job.preemption.missed_deadline and tells_of_checkpoints(job, task.number):
        return 0.0
    progress = job.training.progress.get(task.number)
    started_at = now if task.started_at is None else task.started_at
    return max(0.0, now - max(started_at, progress.saved_at if progress else 0.0))
