"""Requests: what may a client ask?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from jobyard.model.job import JobSpec, State
from jobyard.model.limits import PAGE_MOST, Annotations, Gpus, Items, Line, Name, Priority, Sentence, TaskLimit
from jobyard.model.node import ClusterConfig, NodeConfig

API = "/api/v1"
PROTOCOL = 1
TOTAL = "Yard-Total"  # the header of a list of jobs: how many there are in all


@dataclass(frozen=True)
class SubmitJob:
    """`key` makes a repeated submit harmless: the same key of the same caller gives the same job.

    With another spec it is refused.
    """

    spec: JobSpec
    key: Line = ""
    dry_run: bool = False  # check and place, submit nothing
    render: bool = False  # with dry_run: also what would be sent to the executor


@dataclass(frozen=True)
class CancelJob:
    tasks: tuple[Name, ...] = ()  # labels, or ranges of them as 3-7; none: the whole job
    force: bool = False  # no grace
    message: Sentence = ""
    states: tuple[State, ...] = ()  # only tasks in these; none: in any


@dataclass(frozen=True)
class CancelJobs:
    """Whole jobs, or their tasks in some states, all in one step."""

    jobs: Annotated[tuple[Name, ...], Items(PAGE_MOST)]
    force: bool = False  # no grace
    message: Sentence = ""
    states: tuple[State, ...] = ()  # only tasks in these; none: in any


@dataclass(frozen=True)
class RetryJob:
    tasks: tuple[Name, ...] = ()  # labels, or ranges of them as 3-7; none: every task that failed or was cancelled
    states: tuple[State, ...] = ()  # only tasks in these; none: in any


@dataclass(frozen=True)
class RemoveJobs:
    """Jobs that have ended, with all that the yard keeps of them: all of them go, or none."""

    jobs: tuple[Name, ...]


@dataclass(frozen=True)
class CollectGarbage:
    """Let go now what would go by itself within the hour; with `dry_run` only say what that is: say which."""

    dry_run: bool


@dataclass(frozen=True)
class AddNode:
    """Use a machine by SSH. It must answer first, unless `force` says that it will one day."""

    config: NodeConfig
    force: bool = False


@dataclass(frozen=True)
class AddCluster:
    """Use a Kubernetes cluster. It must answer first, unless `force` says that it will one day."""

    config: ClusterConfig
    force: bool = False


@dataclass(frozen=True)
class CreateToken:
    """An admin may also make and revoke tokens, change nodes and clusters, and stop the server."""

    name: Name
    admin: bool = False


@dataclass(frozen=True)
class ChangePriority:
    priority: Priority


@dataclass(frozen=True)
class AnnotateJob:
    """Words to keep with a job, by name; null takes one away. Others stay."""

    annotations: Annotations


@dataclass(frozen=True)
class ScaleJob:
    """Either `auto` (the scheduler chooses again), or `size` (of what the job can change), or GPUs, workers or both."""

    size: TaskLimit | None = None
    gpus: Gpus | None = None
    workers: TaskLimit | None = None
    auto: bool = False


@dataclass(frozen=True)
class AcceptRow:
    """Go on without this row of the journal, which is damaged."""

    row: int
