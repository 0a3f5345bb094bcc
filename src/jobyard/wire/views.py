"""Views: what does the server answer? Read-only, complete enough that no client needs to compute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jobyard.model.job import Reason, State
from jobyard.model.node import NodeState
from jobyard.model.resources import Resources
from jobyard.model.source import GitState
from jobyard.model.training import Epoch
from jobyard.wire.kept import KeptView


@dataclass(frozen=True)
class Problem:
    """Why a request failed: one sentence for people, and a code that stays the same (RFC 9457).

    `field` is what is wrong, where it is one thing: a place in the request or a flag. The title begins with it.
    """

    code: str
    title: str
    status: int
    field: str = ""


@dataclass(frozen=True)
class Counts:
    """Tasks of a job by state; they add up to `total`."""

    total: int = 0
    pending: int = 0
    starting: int = 0
    running: int = 0
    stopping: int = 0
    suspended: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def finished(self) -> int:
        return self.succeeded + self.failed + self.cancelled

    @property
    def done(self) -> int:
        """Those that ran to their end: a cancelled task is finished, and not done."""
        return self.succeeded + self.failed


@dataclass(frozen=True)
class GroupView:
    name: str
    count: int
    completions: int
    parallelism: int | None
    resources: Resources
    command: str


@dataclass(frozen=True)
class AttemptView:
    """An attempt at a task that ended and was followed by another one."""

    number: int
    node: str
    started_at: float
    finished_at: float
    reason: Reason | None = None
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True)
class TaskView:
    """One task. `label` is its address inside the job."""

    number: int
    label: str
    state: State
    attempt: int = 0
    reason: Reason | None = None
    message: str = ""
    node: str = ""
    unit: str = ""  # the pod of the newest attempt that began on a cluster
    devices: tuple[int, ...] = ()
    exit_code: int | None = None
    signal: int | None = None
    started_at: float | None = None
    finished_at: float | None = None
    peak_memory_mib: int | None = None
    peak_gpu_memory_mib: int | None = None
    command: str = ""  # its own, with its line; a very long one is cut
    last_line: str = ""  # what it wrote last, where that was asked for
    earlier: tuple[AttemptView, ...] = ()  # the last attempts before this one
    # The file that the server has, where that was asked for. Empty once it is packed: then only the logs have it.
    stdout: str = ""
    stderr: str = ""
    values: dict[str, str] = field(default_factory=dict)  # its own, of inputs that have names, as of a sweep


@dataclass(frozen=True)
class FailureView:
    """The first task that failed, with the last lines it wrote."""

    task: TaskView
    last_lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class SizeView:
    """What was measured of a kind of job at one size."""

    size: str
    epoch_seconds: float
    step_seconds: float


@dataclass(frozen=True)
class TrainingView:
    """How a training job goes. Of several tasks: of the one that is furthest behind."""

    epochs_done: int = 0
    epochs_total: int | None = None
    epoch_seconds: float | None = None
    step_seconds: float | None = None
    steps: int = 0  # of the attempt that runs
    steps_per_epoch: int | None = None  # of one process, by batch and set size
    percent: float | None = None
    eta_seconds: float | None = None
    eta_low_seconds: float | None = None
    eta_high_seconds: float | None = None
    estimated_seconds: float | None = None  # for the whole: the user's guess, corrected by the first epoch
    is_over_estimate: bool = False
    size: str = ""
    sizes: str = ""  # of an elastic job: what it may have
    by_size: tuple[SizeView, ...] = ()
    gpu_percent: int | None = None
    gpu_memory_mib: int | None = None  # now, of one task on one device
    peak_gpu_memory_mib: int | None = None
    checkpoint_seconds: float | None = None
    restart_seconds: float | None = None
    can_yield: bool = False
    preemptions: int = 0
    resizes: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    history: tuple[Epoch, ...] = ()
    trouble: str = ""
    idle_seconds: float | None = None  # since when its GPUs do nothing, if for too long
    kind: str = ""
    log_dir: str = ""  # what TensorBoard reads, if the submitter said it
    workers: int = 1
    gpus: int = 0  # of each worker
    gpus_range: tuple[int, int] | None = None  # of each worker, both ends included; None: it does not change
    saved_at: float | None = None  # its newest checkpoint, if it tells of them
    restarts: int = 0  # attempts after the first, whatever ended the one before


@dataclass(frozen=True)
class JobView:
    id: str
    number: int
    name: str
    user: str
    state: State
    reason: Reason | None
    message: str
    priority: int
    submitted_at: float
    started_at: float | None
    finished_at: float | None
    counts: Counts
    command: str
    workdir: str
    source: str
    gang: bool
    groups: tuple[GroupView, ...] = ()
    after: tuple[str, ...] = ()
    retries: int = 0
    max_fails: int | None = None
    limit: int | None = None
    timeout_seconds: float | None = None
    env: dict[str, str] = field(default_factory=dict)  # names the user set; values of secrets never come here
    notes: tuple[str, ...] = ()
    eta_seconds: float | None = None
    exit_code: int | None = None  # of a job of one task
    first_failure: FailureView | None = None
    training: TrainingView | None = None
    cluster: str = ""  # of Kubernetes, if it runs on one
    kind: str = ""  # of its object there, where the submitter chose it
    image: str = ""
    container: bool = False  # on machines: its tasks run in containers of the image
    git: GitState | None = None  # what the image was made from; without its diff, which has a call of its own
    asked: dict[str, Any] = field(default_factory=dict)  # what the submitter set, by its place in a spec; not in lists
    annotations: dict[str, str] = field(default_factory=dict)  # what other programs keep with it
    first_started_at: float | None = None  # before it was retried
    given_more: str = ""  # that it ran out of memory and was given more, in words
    not_written: str = ""  # which files of `--output` could not be written, in words
    is_owners: bool = False  # submitted over the Unix socket, by the yard's owner; with a token it is somebody else's


@dataclass(frozen=True)
class PlanView:
    """A dry run: what would be submitted and where its first tasks would go."""

    job: JobView
    placements: tuple[str, ...] = ()  # one sentence each
    rendered: str = ""


@dataclass(frozen=True)
class WhyView:
    job: str
    state: State
    reason: Reason | None
    sentences: tuple[str, ...]
    first_failure: FailureView | None = None
    number: int = 0  # of the job


@dataclass(frozen=True)
class DeviceView:
    index: int
    name: str
    memory_mib: int
    reserved_mib: int
    foreign_mib: int
    fake: bool
    used_mib: int | None = None  # as last measured, for all its users together
    percent: int | None = None  # of its compute, as last measured
    reserved_percent: int = 0  # of its compute, asked by the tasks that share it
    foreign_percent: int = 0  # of its compute, used or reserved by others
    is_taken: bool = False  # by a task or somebody else, also where its memory is not known


@dataclass(frozen=True)
class NodeView:
    id: str
    executor: str
    state: NodeState
    cpu_millis: int
    cpu_millis_reserved: int
    cpu_millis_foreign: int
    memory_mib: int
    memory_mib_reserved: int
    memory_mib_foreign: int
    tasks: int
    devices: tuple[DeviceView, ...] = ()
    labels: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()  # reservations of others that are not believed, and why
    load: float | None = None
    host: str = ""  # how it is reached; empty: this machine
    user: str = ""  # as whom; empty: as ssh's configuration says
    port: int | None = None
    problem: str = ""  # why there is no link to it now
    runtime: str = ""  # what runs containers there: docker or podman
    runtime_problem: str = ""  # why nothing does


@dataclass(frozen=True)
class NodeRemoved:
    removed: str


@dataclass(frozen=True)
class ClusterRemoved:
    removed: str
    cancelled: tuple[str, ...]  # jobs that had not ended there


@dataclass(frozen=True)
class ClusterView:
    id: str
    server: str = ""  # the address of its API server, once it has been reached
    kubeconfig: str = ""  # empty: the service account of the pod that the server runs in
    context: str = ""
    namespace: str = ""
    storage: str = ""
    queue: str = ""
    allow_host_path: bool = False
    is_connected: bool = False
    problem: str = ""  # why there is no link to it now
    nodes: int = 0
    nodes_up: int = 0
    gpus: int = 0  # of nodes that are up
    gpus_free: int = 0
    jobs: int = 0  # that have not ended


@dataclass(frozen=True)
class ProcessView:
    """A task's process on a machine, for callers who go there with rights of their own."""

    attempt: str
    agent: str  # the build of the agent's program that is on that machine
    state_dir: str = ""  # of the agent, on the server's own machine; empty: it is behind SSH, and `yard` tells which
    yard: str = ""  # as the agent there knows it
    host: str = ""
    user: str = ""
    port: int | None = None
    key_path: str = ""  # on the server's machine
    own_network: bool = False  # it runs in a container that has only these ports
    ports: tuple[tuple[int, int], ...] = ()  # of the machine, of the container


@dataclass(frozen=True)
class UnitView:
    """The pod of a task, and how it is reached; of a task on a machine: where it runs."""

    job: str
    task: str
    state: State
    node: str
    cluster: str = ""
    namespace: str = ""
    pod: str = ""
    container: str = ""  # empty: the pod's own choice
    kubeconfig: str = ""
    context: str = ""
    host: str = ""  # of the machine, as SSH reaches it; empty: the server's own machine
    workdir: str = ""
    number: int = 0  # of the job
    process: ProcessView | None = None  # of a task on a machine


@dataclass(frozen=True)
class AgentView:
    node: str
    pid: int | None
    build: str
    connected: bool


@dataclass(frozen=True)
class TroubleView:
    """Errors that the server has survived since it began, by what they spoiled."""

    what: str
    count: int
    last: str  # in a sentence; the server's log has the trace
    last_at: float


@dataclass(frozen=True)
class DamageView:
    """A row of the journal that cannot be read, or carried out."""

    row: int
    sentence: str
    jobs: tuple[str, ...] = ()  # in quarantine because of it
    is_accepted: bool = False


@dataclass(frozen=True)
class ServerView:
    pid: int
    build: str
    version: str
    yard: str  # the yard's directory
    yard_id: str
    listen: str
    started_at: float
    jobs_active: int
    tasks_active: int
    database: str
    agents: tuple[AgentView, ...] = ()
    last_event: int = 0  # the number of the newest one; GET /events?since= goes on after it
    troubles: tuple[TroubleView, ...] = ()
    damages: tuple[DamageView, ...] = ()
    read_only: str = ""  # why nothing can be asked of this yard, and the way out
    kept: KeptView | None = None  # None: it has not looked yet


@dataclass(frozen=True)
class TokenView:
    """`secret` is there once, in the answer to its creation."""

    id: str
    name: str
    created_at: float
    last_used_at: float | None = None
    secret: str = ""
    kind: str = "member"  # or admin


@dataclass(frozen=True)
class TokenRevoked:
    revoked: str


@dataclass(frozen=True)
class EndingView:
    """How a task ended: its last attempt."""

    number: int
    task: str
    attempt: int
    state: State
    node: str
    started_at: float
    finished_at: float
    exit_code: int | None
    signal: int | None
    output_bytes: int  # of its stdout
    command: str
    seq: int = 0  # its `{#}`, from 1; 0: an older server does not tell


@dataclass(frozen=True)
class LogChunk:
    """A piece of one attempt's output. `final` says that nothing more will come of the whole request."""

    task: str
    attempt: int
    stream: str  # out or err
    data: str  # UTF-8; bytes that are not are surrogates (Python's surrogateescape), so nothing is lost
    final: bool = False
    at: float | None = None  # when the server read it, of what came while it followed; else nobody knows
    damage: str = ""  # in words, why the output of this attempt cannot be had, or not all of it; `data` is empty then
