"""Executor protocol: what must a place where attempts run be able to do? Few verbs, many attempts, safe to repeat."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from jobyard.model.effects import Effect, Launch
from jobyard.model.events import Event
from jobyard.model.job import JobSpec
from jobyard.model.task import AttemptId, Slot
from jobyard.model.training import YIELD_SECONDS


class SubmittedJob(NamedTuple):
    id: str
    number: int
    spec: JobSpec


class LiveAttempt(NamedTuple):
    """An attempt that the yard believes to be with an executor."""

    attempt: AttemptId
    slot: Slot
    is_stopping: bool
    is_yielding: bool = False  # stopping at its next checkpoint
    yield_seconds: float = YIELD_SECONDS  # how long it may take to that checkpoint
    at_once: bool = False  # yielding, but ended now: it cannot stop at a checkpoint by itself
    pod: str = ""  # of the newest attempt that began, be it this one or the one before
    is_running: bool = False  # this one has begun, and so `pod` is its own


class JobFacts(NamedTuple):
    """What decides about the objects of a job."""

    is_over: bool  # it has ended, or is unknown
    is_stopping: bool = False  # it was asked to stop: none of its tasks may start any more
    is_fresh: bool = False  # none of its tasks has had an attempt, except the first ones that are live now
    slots: int = 0  # so many of its tasks may run at once
    waiting: int = 0  # so many have no slot
    attempt: int = 0  # the latest of its first task, also if that has ended
    is_quarantined: bool = False  # in quarantine: nothing of it is begun, stopped or removed


class YardView(Protocol):
    """What an executor may ask of the yard, at any time."""

    def job(self, job_id: str) -> SubmittedJob: ...
    def inherited_env(self, spec: JobSpec) -> Mapping[str, str]:
        """The variables of the shell that a job was submitted from. Raises Rejected where they are gone."""

    def live_attempts(self, node: str) -> Sequence[LiveAttempt]:
        """Those on a node, or on all nodes of a cluster."""

    def live_of(self, job_id: str) -> Sequence[LiveAttempt]:
        """Those of a job, by task."""

    def node_of(self, attempt: AttemptId) -> str | None:
        """Where an attempt is; empty: it has ended or was superseded; None: there is no such attempt."""

    def facts(self, job_id: str) -> JobFacts: ...

    def nodes_of(self, cluster: str) -> Sequence[str]:
        """Those that the yard believes to be there."""

    def quarantined_jobs(self) -> Sequence[str]:
        """Jobs in quarantine: their attempts are left alone, also those that the yard does not know."""

    def is_ended(self, job_id: str, task: int) -> bool:
        """Is nothing more wanted of this task?"""

    def resumes_at(self, attempt: AttemptId, node: str) -> int | None:
        """The epochs that its checkpoint on this node covers; None: there is none."""

    def gang_addresses(self, job_id: str) -> Sequence[str]:
        """Where each rank of a gang is reached by the others; none where all are on one machine."""

    @property
    def is_busy(self) -> bool:
        """Whether any work is pending."""

    async def journalled(self) -> None:
        """Returns when all that the yard holds is on disk: only that may be launched."""

    def count_error(self, what: str, sentence: str, error: Exception | None = None) -> None:
        """An error that stayed with one job or one message: it is logged with its trace, and counted."""


@dataclass(frozen=True, slots=True)
class AgentStatus:
    node: str
    pid: int | None
    build: str
    is_connected: bool
    problem: str = ""
    address: str = ""  # by which other machines reach it; empty: not known
    sees_us_as: str = ""  # by which it would reach this machine


class Executor(Protocol):
    name: str

    async def run(self) -> None:
        """Stay connected until cancelled: reconnect after any failure, and reconcile each time."""

    def observations(self) -> AsyncIterator[Sequence[Event]]:
        """What is seen, in batches, for as long as the executor runs."""

    def perform(self, effects: Sequence[Effect]) -> None:
        """Carry effects out. Never waits; what cannot be sent now is repaired by the next reconcile.

        An error with one effect concerns that effect alone. Where it is not caught here, all of them may come again.
        """

    def announce(self, is_busy: bool) -> None:
        """Let the other side know whether work is pending: then it brings a dead server back. Never waits."""

    async def check(self, job: SubmittedJob) -> None:
        """Before a job is taken: raises UserError, in the executor's own words, where it would refuse it."""

    def preview(self, job: SubmittedJob, launch: Launch) -> str:
        """What would be sent for it, for `--render`."""

    def log_path(self, attempt: AttemptId, stream: str) -> str:
        """Where the bytes of an attempt's `out` or `err` are."""

    async def probe(self) -> None:
        """Measure anew; returns when it has been observed, or after a while."""

    def dismiss(self) -> None:
        """The yard ends with nothing left to do: its agent may end too."""

    def reconnect(self) -> None:
        """Drop the connection and reconcile again."""

    def status(self) -> AgentStatus: ...


class Stored(NamedTuple):
    """What a place has on its disk."""

    jobs: Sequence[str]
    snapshots: Sequence[str]


@runtime_checkable
class CanForget(Executor, Protocol):
    """An executor that stores files of attempts, and carries out `Forget`."""

    async def stored(self) -> Stored | None:
        """None: it cannot be asked now."""


@runtime_checkable
class InNamespace(Protocol):
    """An executor whose attempts are in a namespace of Kubernetes."""

    @property
    def namespace(self) -> str:
        """Empty: not known yet."""

    @property
    def is_tidy(self) -> bool:
        """Is nothing to be done there now, neither for jobs that run nor after those that have ended?"""
