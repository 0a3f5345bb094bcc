"""Saved state (serialisation): how does the whole yard become plain data, and come back? Durable facts only.

Measurements, and what is derived from the rest, are left out: they are measured and derived again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobyard.engine.delayed_tasks import DelayedTasks
from jobyard.engine.intervals import IntervalSet
from jobyard.engine.job_record import JobRecord, SlotRecord
from jobyard.engine.profiles import AtSize, Profile
from jobyard.engine.task_table import TaskTable
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
    is_closing: bool = False
    progress_at: float = 0.0


@dataclass(frozen=True, slots=True)
class SavedJob:
    """What lasts of a JobRecord; sets are ranges, and dicts are pairs."""

    id: str
    number: int
    spec: JobSpec
    submitted_at: float
    priority: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    first_started_at: float | None = None
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
    next_start_at: float = 0.0


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
    asked: Mapping[str, str] = field(default_factory=dict)


# Which field of SavedJob is which attribute of which part of a JobRecord ("": of the record itself).
_PARTS: dict[str, dict[str, str]] = {
    "": {name: name for name in ("priority", "stop", "age")},
    "times": {
        name: name for name in ("submitted_at", "started_at", "finished_at", "first_started_at", "next_start_at")
    },
    "tasks": {name: name for name in ("first_failure", "gang_failures")},
    "use": {name: name for name in ("peak_memory_mib", "busy_seconds")},
    "training": {name: name for name in ("fixed_size", "estimate_seconds")},
    "preemption": {
        "next_size": "next_size",
        "asked_to_yield": "asked",
        "preemptions": "count",
        "resizes": "resizes",
        "missed_deadline": "missed_deadline",
    },
    "memory": {"more_gpu_mib": "gpu_mib", "more_memory_mib": "memory_mib", "memory_requeues": "requeues"},
}
_RANGES = ("pending", "succeeded", "cancelled")  # of its tasks
_PAIRS = {  # and which part has them
    "annotations": "",
    "attempts": "tasks",
    "mean_seconds": "use",
    "progress": "training",
    "checkpoint_places": "training",
}
_OF_PROFILE = (
    *("epochs", "peak_memory_mib", "peak_gpu_memory_mib", "least_gpu_mib", "gpu_percent"),
    *("checkpoint_seconds", "restart_seconds"),
)


def save(state: YardState) -> Any:
    """JSON-ready data, of which `load` makes the same state again."""
    return encode(
        SavedState(
            tuple(_saved_job(job, state.quarantined.get(job.id, "")) for job in state.jobs.values()),
            tuple(state.unfinished),
            tuple(state.places.nodes.values()),
            tuple(state.places.configs.values()),
            tuple(state.places.clusters.values()),
            tuple(sorted(state.places.drained)),
            tuple(sorted(state.places.removed)),
            tuple(state.slots),
            {job: tuple(others) for job, others in state.dependents.items()},
            dict(state.keys),
            state.last_number,
            state.last_slot,
            {kind: _saved_profile(profile) for kind, profile in state.trainings.profiles.items()},
            tuple(sorted(state.trainings.storages)),
            dict(state.asked),
        )
    )


def load(data: Any) -> YardState:
    """Raises UserError where `data` is no saved state."""
    saved, state = decode(SavedState, data), YardState()
    for each in saved.jobs:
        job = _job(each)
        state.jobs[job.id] = job
        if each.quarantine:
            state.quarantined[job.id] = each.quarantine
    state.unfinished = {job: state.jobs[job] for job in saved.unfinished}
    state.places.nodes = {node.id: node for node in saved.nodes}
    state.places.configs = {config.id: config for config in saved.configs}
    state.places.clusters = {config.id: config for config in saved.clusters}
    state.places.drained, state.places.removed = set(saved.drained), set(saved.removed)
    of_slot = {slot: (job, record) for job in state.jobs.values() for slot, record in job.slots.items()}
    state.slots = {slot: of_slot[slot] for slot in saved.slots}
    state.dependents.update((job, list(others)) for job, others in saved.dependents.items())
    state.keys, state.asked = dict(saved.keys), dict(saved.asked)
    state.last_number, state.last_slot = saved.last_number, saved.last_slot
    state.trainings.profiles = {kind: _profile(profile) for kind, profile in saved.profiles.items()}
    state.trainings.storages = set(saved.storages)
    return state


def _part(job: JobRecord, name: str) -> Any:
    return getattr(job, name) if name else job


def _saved_job(job: JobRecord, quarantine: str) -> SavedJob:
    own: dict[str, Any] = {name: tuple(getattr(job.tasks, name).ranges()) for name in _RANGES}
    own |= {name: tuple(getattr(_part(job, part), name).items()) for name, part in _PAIRS.items()}
    for part, names in _PARTS.items():
        source = _part(job, part)
        own |= {saved: getattr(source, name) for saved, name in names.items()}
    return SavedJob(
        id=job.id,
        number=job.number,
        spec=job.spec,
        **own,
        quarantine=quarantine,
        tasks=tuple(job.tasks.known.values()),
        set_aside=tuple(job.tasks.set_aside.values()),
        slots=tuple(
            SavedSlot(each.slot, tuple(sorted(each.tasks)), each.was_fed, each.is_closing, each.progress_at)
            for each in job.slots.values()
        ),
    )


def _job(saved: SavedJob) -> JobRecord:
    job = JobRecord(saved.id, saved.number, saved.spec, saved.submitted_at)
    for part, names in _PARTS.items():
        target = _part(job, part)
        for field_name, name in names.items():
            setattr(target, name, getattr(saved, field_name))
    for name, part in _PAIRS.items():
        setattr(_part(job, part), name, dict(getattr(saved, name)))
    _fill(job.tasks, saved)
    job.slots = {
        each.slot.id: SlotRecord(each.slot, set(each.tasks), each.was_fed, each.is_closing, each.progress_at)
        for each in saved.slots
    }
    return job


def _fill(table: TaskTable, saved: SavedJob) -> None:
    table.known, table.set_aside = _by_number(saved.tasks), _by_number(saved.set_aside)
    for name in _RANGES:
        setattr(table, name, IntervalSet(getattr(saved, name)))
    table.delayed = DelayedTasks(saved.tasks)
    table.counts = Counter(task.state for task in saved.tasks)
    table.counts[State.PENDING] = len(table.pending) + len(table.delayed)
    table.counts[State.SUCCEEDED] = len(table.succeeded)
    table.counts[State.CANCELLED] = len(table.cancelled)


def _by_number(tasks: Iterable[Task]) -> dict[int, Task]:
    return {task.number: task for task in tasks}


def _saved_profile(profile: Profile) -> SavedProfile:
    sizes = tuple((size, at.epoch_seconds, at.step_seconds) for size, at in profile.by_size.items())
    return SavedProfile(sizes, *(getattr(profile, name) for name in _OF_PROFILE))


def _profile(saved: SavedProfile) -> Profile:
    sizes = {size: AtSize(epoch, step) for size, epoch, step in saved.by_size}
    return Profile(sizes, *(getattr(saved, name) for name in _OF_PROFILE))
