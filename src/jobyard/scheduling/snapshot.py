"""What does the scheduler see in one cycle, and what may it answer?"""

from __future__ import annotations

from dataclasses import dataclass, field

from jobyard.model.job import Reason
from jobyard.model.node import Node, NodeConfig
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import Slot


@dataclass(frozen=True, slots=True)
class Member:
    """Room wanted for one group of a job (one replica of it, where replicas are limited)."""

    group: int
    resources: Resources
    wanted: int
    replica: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What one job would open now. A gang wants all of its members in full or nothing."""

    job: str
    priority: int
    age: int  # the job's number: smaller is older
    members: tuple[Member, ...]
    gang: bool = False
    on: str = ""
    overcommit: bool = False  # cores and GPU compute may go a little over what there is


@dataclass(frozen=True, slots=True)
class HeldSlot:
    slot: Slot
    priority: int
    age: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    nodes: tuple[Node, ...]
    held: tuple[HeldSlot, ...]
    requests: tuple[Request, ...]
    awaited: tuple[NodeConfig, ...] = ()  # machines that were added and have never been reached


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
class Plan:
    openings: tuple[Opening, ...] = ()
    yielding: frozenset[str] = frozenset()  # slots that take no new task, because an earlier job waits for their room
    waits: dict[str, Wait] = field(default_factory=dict)
