"""Saved state (serialisation): how does the whole yard become plain data, and come back? Durable facts only.

Measurements, and what is derived from the rest, are left out: they are measured and derived again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobyard.engine.intervals import IntervalSet
from jobyard.engine.job_record import JobRecord, SlotRecord
from jobyard.engine.profiles import AtSize, Profile
from jobyard.engine.yard_state import YardState
from jobyard.model.codec import decode, encode
from jobyard.model.events import YieldRequested
from jobyard.model.job import JobSpec, Reason, State
from jobyard.model.node import ClusterConfig, Node, NodeConfig
from jobyard.model.task import Slot, Task
from jobyard.model.training import Progress, Size

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SavedSlot:
    slot: Slot
    tasks: tuple[int, ...]
    was_fed: bool = False
    is_void: bool = False  # SlotRecord.is_closing, by the name that older bases have
    progress_at: float = 0.0


@dataclass(frozen=True, slots=True)
class SavedJob:
    """The fields of a JobRecord that last, by the same names; sets are ranges, and dicts are pairs."""

    id: str
    number: int
    spec: JobSpec
    submitted_at: float
    priority: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    pending: Ranges = ()
    succeeded: Ranges = ()
    cancelled: Ranges = ()
    tasks: tuple[Task, ...] = ()
    attempts: tuple[tuple[int, int], ...] = ()
    slots: tuple[SavedSlot, ...] = ()
    mean_seconds: tuple[tuple[int, float], ...] = ()
    first_failure: int | None = None
    stop: tuple[Reason, str] | None = None
    gang_failures: int = 0
    peak_memory_mib: int = 0
    busy_seconds: float = 0.0
    age: int = 0
    progress: tuple[tuple[int, Progress], ...] = ()
    checkpoint_places: tuple[tuple[int, str], ...] = ()
    fixed_size: Size | None = None
    next_size: Size | None = None
    asked_to_yield: YieldRequested | None = None
    set_aside: tuple[Task, ...] = ()
    estimate_seconds: float | None = None
    preemptions: int = 0
    resizes: int = 0
    more_gpu_mib: int = 0
    more_memory_mib: int = 0
    memory_requeues: int = 0
    missed_deadline: str = ""
    annotations: tuple[tuple[str, str], ...] = ()
    quarantine: str = ""


@dataclass(frozen=True, slots=True)
class SavedProfile:
    by_size: tuple[tuple[Size, float, float], ...] = ()  # seconds of an epoch, and of a step
    epochs: int = 0
    peak_memory_mib: int = 0
    peak_gpu_memory_mib: int = 0
    least_gpu_mib: int = 0
    gpu_percent: int | None = None
    checkpoint_seconds: float = 0.0
    restart_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SavedState:
    jobs: tuple[SavedJob, ...] = ()
    unfinished: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    configs: tuple[NodeConfig, ...] = ()
    clusters: tuple[ClusterConfig, ...] = ()
    drained: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    slots: tuple[str, ...] = ()  # in the order in which they were opened
    dependents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    last_number: int = 0
    last_slot: int = 0
    profiles: Mapping[str, SavedProfile] = field(default_factory=dict)
    storages: tuple[str, ...] = ()


# What is written as it is.
_OF_JOB = (
    *("id", "number", "spec", "submitted_at", "priority", "started_at", "finished_at", "first_failure", "stop"),
    *("gang_failures", "peak_memory_mib", "busy_seconds", "age", "fixed_size", "next_size", "asked_to_yield"),
    *("estimate_seconds", "preemptions", "resizes", "more_gpu_mib", "more_memory_mib", "memory_requeues"),
    *("missed_deadline", "quarantine"),
)
_RANGES = ("pending", "succeeded", "cancelled")
_PAIRS = ("attempts", "mean_seconds", "progress", "checkpoint_places", "annotations")
_OF_PROFILE = (
    *("epochs", "peak_memory_mib", "peak_gpu_memory_mib", "least_gpu_mib", "gpu_percent"),
    *("checkpoint_seconds", "restart_seconds"),
)


def save(state: YardState) -> Any:
    """JSON-ready data, of which `load` makes the same state again."""
    return encode(
        SavedState(
            tuple(_saved_job(job) for job in state.jobs.values()),
            tuple(state.unfinished),
            tuple(state.nodes.values()),
            tuple(state.configs.values()),
            tuple(state.clusters.values()),
            tuple(sorted(state.drained)),
            tuple(sorted(state.removed)),
            tuple(state.slots),
            {job: tuple(others) for job, others in state.dependents.items()},
            dict(state.keys),
            state.last_number,
            state.last_slot,
            {kind: _saved_profile(profile) for kind, profile in state.trainings.profiles.items()},
            tuple(sorted(state.trainings.storages)),
        )
    )


def load(data: Any) -> YardState:
    """Raises UserError where `data` is no saved state."""
    saved, state = decode(SavedState, data), YardState()
    for each in saved.jobs:
        job = _job(each, state.sharing_environment(each.spec))
        state.jobs[job.id] = job
        if job.quarantine:
            state.quarantined[job.id] = None
    state.unfinished = {job: state.jobs[job] for job in saved.unfinished}
    state.nodes = {node.id: node for node in saved.nodes}
    state.configs = {config.id: config for config in saved.configs}
    state.clusters = {config.id: config for config in saved.clusters}
    state.drained, state.removed = set(saved.drained), set(saved.removed)
    of_slot = {slot: (job, record) for job in state.jobs.values() for slot, record in job.slots.items()}
    state.slots = {slot: of_slot[slot] for slot in saved.slots}
    state.dependents.update((job, list(others)) for job, others in saved.dependents.items())
    state.keys = dict(saved.keys)
    state.last_number, state.last_slot = saved.last_number, saved.last_slot
    state.trainings.profiles = {kind: _profile(profile) for kind, profile in saved.profiles.items()}
    state.trainings.storages = set(saved.storages)
    return state


def _saved_job(job: JobRecord) -> SavedJob:
    own: dict[str, Any] = {name: getattr(job, name) for name in _OF_JOB}
    own |= {name: tuple(getattr(job, name).ranges()) for name in _RANGES}
    own |= {name: tuple(getattr(job, name).items()) for name in _PAIRS}
    return SavedJob(
        **own,
        tasks=tuple(job.tasks.values()),
        set_aside=tuple(job.set_aside.values()),
        slots=tuple(
            SavedSlot(each.slot, tuple(sorted(each.tasks)), each.was_fed, each.is_closing, each.progress_at)
            for each in job.slots.values()
        ),
    )


def _job(saved: SavedJob, spec: JobSpec) -> JobRecord:
    job = JobRecord(saved.id, saved.number, spec, saved.submitted_at)
    for name in _OF_JOB:
        if name != "spec":
            setattr(job, name, getattr(saved, name))
    for name in _RANGES:
        setattr(job, name, IntervalSet(getattr(saved, name)))
    for name in _PAIRS:
        setattr(job, name, dict(getattr(saved, name)))
    job.tasks, job.set_aside = _by_number(saved.tasks), _by_number(saved.set_aside)
    job.slots = {
        each.slot.id: SlotRecord(each.slot, set(each.tasks), each.was_fed, each.is_void, each.progress_at)
        for each in saved.slots
    }
    job.counts = Counter(task.state for task in saved.tasks)
    for state, numbers in ((State.PENDING, job.pending), (State.SUCCEEDED, job.succeeded)):
        job.counts[state] = len(numbers)
    job.counts[State.CANCELLED] = len(job.cancelled)
    return job


def _by_number(tasks: Iterable[Task]) -> dict[int, Task]:
    return {task.number: task for task in tasks}


def _saved_profile(profile: Profile) -> SavedProfile:
    sizes = tuple((size, at.epoch_seconds, at.step_seconds) for size, at in profile.by_size.items())
    return SavedProfile(sizes, *(getattr(profile, name) for name in _OF_PROFILE))


def _profile(saved: SavedProfile) -> Profile:
    sizes = {size: AtSize(epoch, step) for size, epoch, step in saved.by_size}
    return Profile(sizes, *(getattr(saved, name) for name in _OF_PROFILE))
