"""Snapshot and plan: what does the scheduler see in one cycle, and what may it answer?"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from jobyard.model.job import Reason
from jobyard.model.kubernetes import Toleration
from jobyard.model.node import Node, NodeConfig, Quota
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import Slot
from jobyard.model.training import Size
from jobyard.scheduling.where import ANYWHERE, Where


@dataclass(frozen=True, slots=True)
class Member:
    """Room wanted for one group of a job (one replica of it, where replicas are limited)."""

    group: int
    resources: Resources
    wanted: int
    replica: int | None = None
    on: str = ""  # where this member alone may go, if not where its request says: beside a checkpoint
    labels: tuple[str, ...] = ()  # key=value, that a node of a cluster must have
    tolerations: tuple[Toleration, ...] = ()
    in_container: bool = False  # only machines that can run one
    with_token: bool = False  # not on machines that only the owner's jobs may use

    def where(self, on: str, cluster: str) -> Where:
        """Where it may be, if its request says `on` and the cluster."""
        return Where(self.on or on, cluster, self.labels, self.tolerations, self.in_container, self.with_token)


def called(job: str, number: int | None) -> str:
    return job if number is None else str(number)


@dataclass(frozen=True, slots=True)
class Request:
    """What one job would open now. A gang wants all of its members in full or nothing."""

    job: str
    priority: int
    age: int  # smaller is older; a job that gave its place up is younger than its number
    members: tuple[Member, ...]
    gang: bool = False
    on: str = ""
    overcommit: bool = False  # cores and GPU compute may go a little over what there is
    smaller: tuple[tuple[Member, ...], ...] = ()  # of an elastic job: what it also starts with, largest first
    gpu_seconds: float | None = None  # the estimated rest, where that is known and reliable
    cluster: str = ""  # it goes to nodes of this cluster alone; empty: to machines alone
    number: int | None = None  # as people call the job, in sentences about it; of two of one age the smaller is first

    @property
    def called(self) -> str:
        return called(self.job, self.number)

    @property
    def least(self) -> tuple[Member, ...]:
        """What it starts with at least."""
        return self.smaller[-1] if self.smaller else self.members

    @property
    def is_together(self) -> bool:
        """All of that or nothing?"""
        return self.gang or bool(self.smaller)


@dataclass(frozen=True, slots=True)
class Running:
    """A job that runs and stops at a checkpoint when asked. Jobs that do not are in `held` alone."""

    job: str
    priority: int
    age: int
    slots: tuple[str, ...]
    size: Size
    sizes: tuple[Size, ...] = ()  # an elastic job: what it may have, smallest first; of any other: none
    lost_seconds: float = 0.0  # of work that is done again after a stop, and of restarting
    restart_seconds: float = 0.0  # to write the checkpoint, and from the next start to the first step
    epochs_left: float | None = None
    epoch_seconds: tuple[tuple[Size, float], ...] = ()  # measured, at the sizes that it or its kind has had
    is_last_epoch: bool = False  # never asked to stop
    is_stopping: bool = False  # asked already
    where: Where = ANYWHERE
    stops_for: str = ""  # the job that it makes room for, where the scheduler asked
    becomes: Size | None = None  # when it is back
    number: int | None = None  # as people call the job, in sentences about it

    @property
    def called(self) -> str:
        return called(self.job, self.number)


@dataclass(frozen=True, slots=True)
class HeldSlot:
    slot: Slot
    priority: int
    age: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    nodes: tuple[Node, ...]
    held: tuple[HeldSlot, ...]
    requests: Collection[Request]  # or a Line, that is kept from cycle to cycle; it does not change during one
    unreached: tuple[NodeConfig, ...] = ()  # machines that were added and have never been reached
    running: tuple[Running, ...] = ()
    claims: tuple[Placement, ...] = ()  # room kept for jobs that stop in order to grow
    quotas: Mapping[str, Quota] = field(default_factory=dict)  # by cluster


@dataclass(frozen=True, slots=True)
class Opening:
    job: str
    group: int
    placement: Placement
    replica: int | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job does not get (all of) what it asked for now."""

    reason: Reason
    sentence: str


@dataclass(frozen=True, slots=True)
class CheckpointStop:
    """This running job is to stop at its next checkpoint: to make room, or to come back with another size."""

    job: str
    reason: Reason  # Preempted or Resizing
    sentence: str
    size: Size | None = None
    claim: tuple[Placement, ...] = ()  # what it will need beyond what it has, if it grows
    stops_for: str = ""  # the job that it makes room for


@dataclass(frozen=True, slots=True)
class Plan:
    openings: tuple[Opening, ...] = ()
    draining_slots: frozenset[str] = frozenset()  # they take no new task: an earlier job waits for their room
    waits: Mapping[str, Wait] = field(default_factory=dict)
    stops: tuple[CheckpointStop, ...] = ()
