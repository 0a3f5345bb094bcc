"""Events: what happened? Past tense, journalled in order; replaying them rebuilds the whole yard.

`by` is the user or the holder of the token who asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from jobyard.model.job import JobSpec, Reason
from jobyard.model.node import ClusterConfig, DeviceUse, Foreign, Node, NodeConfig, Quota
from jobyard.model.resources import Placement
from jobyard.model.task import AttemptId, Outcome, Slot
from jobyard.model.training import Progress, Size


class Started(NamedTuple):
    attempt: AttemptId
    at: float
    unit: str = ""  # the pod that runs it


class Awaited(NamedTuple):
    """Why an attempt that was handed to a cluster does not run yet, in the cluster's words."""

    attempt: AttemptId
    reason: Reason | None
    sentence: str  # empty: nothing holds it any more


class Finished(NamedTuple):
    attempt: AttemptId
    outcome: Outcome


class Progressed(NamedTuple):
    attempt: AttemptId
    progress: Progress


class Used(NamedTuple):
    """What one attempt uses now."""

    attempt: AttemptId
    memory_mib: int
    gpu_memory_mib: int  # on the device where it uses most
    gpu_percent: int | None  # mean over its devices; None: they do not tell


@dataclass(frozen=True, slots=True)
class Event:
    ephemeral: ClassVar[bool] = False  # True: a measurement; it is not journalled, and replay does without it


@dataclass(frozen=True, slots=True)
class NodeAdded(Event):
    """A user wants this machine to be used; the same name again replaces how it is reached."""

    config: NodeConfig
    at: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class NodeRemoved(Event):
    """A user no longer wants it: what still runs there is given up."""

    node: str
    at: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class NodeDrained(Event):
    """It finishes what it has and gets nothing new, until NodeResumed."""

    node: str
    at: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class NodeResumed(Event):
    node: str
    at: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class NodeWentAway(Event):
    """The link is lost and a lease runs: nothing new is placed there, what runs there still counts as running."""

    node: str
    at: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class NodeJoined(Event):
    """A node is there, for the first time or again; what it has replaces what was known of it."""

    node: Node
    at: float


@dataclass(frozen=True, slots=True)
class NodeLost(Event):
    """Given up: its attempts are superseded, and their tasks run elsewhere or when it is back."""

    node: str
    at: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class NodeMeasured(Event):
    """What others hold (the scheduler uses it), and the load and use of GPUs (shown to people)."""

    ephemeral: ClassVar[bool] = True
    node: str
    foreign: Foreign
    at: float
    load: float | None = None
    device_use: tuple[DeviceUse, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterAdded(Event):
    """A user wants this cluster to be used; the same name again replaces how it is reached."""

    config: ClusterConfig
    at: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class ClusterRemoved(Event):
    """A user no longer wants it: what still runs there is given up."""

    cluster: str
    at: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class QuotaMeasured(Event):
    """What this yard may have of a cluster in all, as quotas and what others use leave it."""

    ephemeral: ClassVar[bool] = True
    cluster: str
    quota: Quota
    at: float


@dataclass(frozen=True, slots=True)
class AttemptsAwaited(Event):
    """Why attempts that were handed to a cluster do not run yet."""

    ephemeral: ClassVar[bool] = True
    items: tuple[Awaited, ...]
    at: float


@dataclass(frozen=True, slots=True)
class SlotMoved(Event):
    """A cluster runs a slot's task on another node than the scheduler had chosen."""

    slot: str
    node: str
    at: float


@dataclass(frozen=True, slots=True)
class JobSubmitted(Event):
    """`key` is the submitter's own: the same key again means the same job, if `asked`, a digest, is the same too."""

    job: str
    number: int
    spec: JobSpec
    at: float
    key: str = ""
    asked: str = ""


@dataclass(frozen=True, slots=True)
class SlotOpened(Event):
    slot: Slot
    at: float


@dataclass(frozen=True, slots=True)
class SlotClosed(Event):
    slot: str
    at: float


@dataclass(frozen=True, slots=True)
class TasksAssigned(Event):
    """Tasks were handed to a slot, as inclusive (first, last) ranges of task numbers; each begins its next attempt."""

    slot: str
    ranges: tuple[tuple[int, int], ...]
    at: float


@dataclass(frozen=True, slots=True)
class AttemptsStarted(Event):
    items: tuple[Started, ...]
    at: float


@dataclass(frozen=True, slots=True)
class AttemptsFinished(Event):
    items: tuple[Finished, ...]
    at: float


@dataclass(frozen=True, slots=True)
class AttemptsWithdrawn(Event):
    """Handed out but never started: their tasks wait again, and the attempt does not count as a try."""

    attempts: tuple[AttemptId, ...]
    at: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class CancelRequested(Event):
    """Stop these tasks (none named: the whole job). `force` skips the grace."""

    job: str
    at: float
    tasks: tuple[int, ...] = ()  # only in rows of older yards
    force: bool = False
    message: str = "cancelled by the user"
    by: str = ""
    ranges: tuple[tuple[int, int], ...] = ()  # inclusive


@dataclass(frozen=True, slots=True)
class RetryRequested(Event):
    """Run these finished tasks once more, with a fresh count of retries; those whose retry is delayed start at once."""

    job: str
    tasks: tuple[tuple[int, int], ...]  # inclusive ranges
    at: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class DeadlinePassed(Event):
    job: str
    at: float


@dataclass(frozen=True, slots=True)
class RetryDelayPassed(Event):
    """Failed tasks of the job may be tried again: those whose delay was over at this time."""

    job: str
    at: float


@dataclass(frozen=True, slots=True)
class JobQuarantined(Event):
    """An error of ours concerned this job: nothing of it is begun or ended until it is cancelled."""

    job: str
    at: float
    message: str


@dataclass(frozen=True, slots=True)
class JobsForgotten(Event):
    """Jobs that had ended leave the yard, with all that it kept of them. Who is not named: the yard itself."""

    jobs: tuple[str, ...]
    at: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class PriorityChanged(Event):
    job: str
    priority: int
    at: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class JobAnnotated(Event):
    """Annotations that other programs store with a job; None removes one. The yard itself reads none of them."""

    job: str
    annotations: Mapping[str, str | None]
    at: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class AttemptsProgressed(Event):
    """Training reported something that must not be lost: an epoch, a checkpoint, that it can yield."""

    items: tuple[Progressed, ...]
    at: float


@dataclass(frozen=True, slots=True)
class AttemptsMeasured(Event):
    """Steps, and what attempts use of memory and GPUs: what the next measurement tells anew."""

    ephemeral: ClassVar[bool] = True
    at: float
    progressed: tuple[Progressed, ...] = ()
    used: tuple[Used, ...] = ()


@dataclass(frozen=True, slots=True)
class UseMeasured(Event):
    """A job was seen to use more than jobs of its kind were known to use."""

    job: str
    memory_mib: int
    gpu_memory_mib: int  # of one task, on one device
    gpu_percent: int | None
    at: float


@dataclass(frozen=True, slots=True)
class YieldRequested(Event):
    """Preemption: its running tasks stop at their next checkpoint and wait again; with a size, they restart that large.

    `to_the_back` puts it behind all jobs of its priority that wait now.
    """

    job: str
    reason: Reason  # Preempted or Resizing
    message: str
    at: float
    size: Size | None = None
    to_the_back: bool = False
    by: str = ""
    # Of one that the scheduler asks.
    stops_for: str = ""  # the job that it makes room for
    claim: tuple[Placement, ...] = ()  # resources that are kept for it, beyond what it has, if it is to grow


@dataclass(frozen=True, slots=True)
class ScaleRequested(Event):
    """A user wants an elastic job to have this size and keep it; None: the scheduler chooses again."""

    job: str
    size: Size | None
    at: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class JobSized(Event):
    """An elastic job that has nothing running will start as large as this."""

    job: str
    size: Size
    at: float


@dataclass(frozen=True, slots=True)
class SlotReserved(Event):
    """What a slot holds of its GPUs' memory was set anew, from what its tasks were seen to use."""

    slot: str
    placement: Placement
    at: float
