"""Job: what did a user ask for? A job never changes after submit, apart from priority and scale."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Any, NamedTuple

from jobyard.errors import NotFound
from jobyard.model.container import ContainerSpec
from jobyard.model.inputs import Inputs
from jobyard.model.kubernetes import KubernetesSpec, Toleration
from jobyard.model.limits import (
    GROUPS_MOST,
    NAME_MOST,
    PIECES_MOST,
    WORDS_MOST,
    ArrayId,
    ArrayStep,
    CpuMillis,
    Env,
    Items,
    Line,
    Mib,
    Name,
    Path,
    ScriptText,
    TaskCount,
    TaskLimit,
    Text,
    Word,
)
from jobyard.model.lines import Lines
from jobyard.model.policy import FailurePolicy, RunPolicy
from jobyard.model.resources import Resources
from jobyard.model.staging import StagingSpec
from jobyard.model.submitter import Submitter
from jobyard.model.training import Elastic, Size, Training
from jobyard.model.units import whole_number
from jobyard.quoting import joined


class State(StrEnum):
    """Of a job and of a task alike. What each means and who moves it on: docs/states.md."""

    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    SUSPENDED = "SUSPENDED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        return self in FINAL

    @property
    def is_active(self) -> bool:
        return self in ACTIVE

    @property
    def told(self) -> str:
        """In a sentence: `succeeded`, `was cancelled`, `is running`."""
        return _TOLD.get(self, f"is {self.lower()}")


FINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})
_TOLD = {State.SUCCEEDED: "succeeded", State.FAILED: "failed", State.CANCELLED: "was cancelled"}
ACTIVE = frozenset({State.STARTING, State.RUNNING, State.STOPPING})


class Reason(StrEnum):
    """Why a job or task is in its state; always together with one sentence."""

    RESOURCES = "Resources"
    PRIORITY = "Priority"
    DEPENDENCY = "Dependency"
    ARRAY_LIMIT = "ArrayLimit"
    QUOTA = "Quota"
    NODE_DOWN = "NodeDown"
    NEVER_FITS = "NeverFits"
    HELD = "Held"
    PREEMPTED = "Preempted"
    RESIZING = "Resizing"
    OUT_OF_MEMORY = "OutOfMemory"
    OUT_OF_GPU_MEMORY = "OutOfGpuMemory"
    TIMEOUT = "Timeout"
    NODE_LOST = "NodeLost"
    EXIT_CODE = "ExitCode"
    SIGNAL = "Signal"
    UNKNOWN = "Unknown"
    RETRY_DELAY = "RetryDelay"  # a failed task waits before its next attempt
    REFUSED = "Refused"  # the executor could not start it, and never can
    CANCELLED = "Cancelled"  # a person asked for it
    ENOUGH = "Enough"  # so many of its tasks succeeded as the policy asks for
    SIBLING_FAILED = "SiblingFailed"  # another task failed, and the policy stops the rest


_COMMENTS = re.compile(r"(?:[^\S\n]*(?:#.*)?\n)*(?:[^\S\n]*#.*)?")
_SBATCH_LINE = re.compile(r"^#SBATCH(?:\s|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A file that began with `#!`, as it was when the job was submitted."""

    name: Path  # of the file, without its directory
    text: ScriptText

    @property
    def interpreter(self) -> tuple[str, ...]:
        """The program, and at most one argument, as Linux reads a first line. Empty: none is named."""
        words = self.text.partition("\n")[0].removeprefix("#!").strip().split(maxsplit=1)
        return tuple(words)

    @property
    def head(self) -> str:
        """What stands before the first command: only there directives count, as with sbatch."""
        found = _COMMENTS.match(self.text)
        return found[0] if found else ""

    @property
    def is_for_sbatch(self) -> bool:
        """Has it a directive that sbatch reads?"""
        return _SBATCH_LINE.search(self.head) is not None


@dataclass(frozen=True, slots=True)
class Command:
    """What a task runs: exactly one of `argv`, `shell` (one bash command) and `lines` (a bash command per task).

    A `script` is run whole by its interpreter, with `argv` for its arguments. With `inputs`, task i also gets row i of
    them in variables, and for `{}`, `{1}` and others in argv or shell (`model/substitution.py`).
    """

    argv: Annotated[tuple[Word, ...], Items(WORDS_MOST)] = ()
    shell: Word = ""
    lines: Lines | None = None
    script: Script | None = None
    inputs: Inputs | None = None

    @staticmethod
    def upgraded(data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Journals of earlier versions have the rows of one column as `entries`."""
        if "entries" not in data or "inputs" in data:
            return data
        rows = {"sources": [{"columns": [{"values": data["entries"]}]}]}
        return {**{key: value for key, value in data.items() if key != "entries"}, "inputs": rows}

    @property
    def is_each(self) -> bool:
        """Does each task have a command, a line or a row of its own?"""
        return self.lines is not None or self.inputs is not None

    def __str__(self) -> str:
        if self.script is not None:
            return joined((self.script.name, *self.argv))
        if self.lines is not None:
            first = f"{len(self.lines)} lines, first: " if len(self.lines) > 1 else ""
            return first + self.lines[0] if len(self.lines) else "no lines"
        return self.shell or joined(self.argv)


@dataclass(frozen=True, slots=True)
class ArrayRange:
    """Array ids as the user wrote them: inclusive (first, last, step) pieces; the tasks stand in this order."""

    pieces: Annotated[tuple[tuple[ArrayId, ArrayId, ArrayStep], ...], Items(PIECES_MOST, 1)]

    def _ranges(self) -> list[range]:
        return [range(first, last + 1, step) for first, last, step in self.pieces]

    def __len__(self) -> int:
        return sum(map(len, self._ranges()))

    def id_of(self, ordinal: int) -> int:
        for piece in self._ranges():
            if ordinal < len(piece):
                return piece[ordinal]
            ordinal -= len(piece)
        raise IndexError(ordinal)

    def ordinal_of(self, array_id: int) -> int | None:
        before = 0
        for piece in self._ranges():
            if array_id in piece:
                return before + piece.index(array_id)
            before += len(piece)
        return None

    @property
    def lowest(self) -> int:
        return min(piece[0] for piece in self._ranges())

    @property
    def highest(self) -> int:
        return max(piece[-1] for piece in self._ranges())


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """One kind of worker: `count` replicas of `completions` tasks, at most `parallelism` at once in each replica."""

    command: Command
    name: Annotated[str, Text(NAME_MOST, is_line=True)] = ""
    count: TaskCount = 1
    completions: TaskLimit = 1
    parallelism: TaskLimit | None = None
    resources: Resources = field(default_factory=Resources)
    env: Env = field(default_factory=dict)
    array: ArrayRange | None = None  # only with count == 1: its length is `completions`
    least_device_mib: Mib = 0  # no GPU with less memory than this; 0: any
    # Of pods; processes on machines do without:
    cpu_limit_millis: CpuMillis = 0  # no more cores than this; 0: no cap
    shm_mib: Mib = 0  # of /dev/shm; 0: as the cluster has it
    node_selector: Mapping[str, str] = field(default_factory=dict)  # labels that a node must have
    tolerations: tuple[Toleration, ...] = ()
    count_most: TaskCount = 0  # autoscaling: Ray may make so many replicas by itself; 0: `count`
    # What the cluster calls GPUs of `gpu_kind`; the yard sets it.
    gpu_products: tuple[Line, ...] = ()  # labels of the nodes that have them
    gpu_profile: Line = ""  # of MIG, where it means slices that are counted apart: 1g.10gb; empty: whole GPUs

    @property
    def size(self) -> int:
        return self.count * self.completions


@dataclass(frozen=True, slots=True)
class Dependency:
    job: Name
    needs_success: bool = True  # afterok; False is afterany


class TaskPlace(NamedTuple):
    """Where task number n of a job stands: its group, and its replica and completion inside it."""

    group: int
    replica: int
    completion: int


@dataclass(frozen=True)
class JobSpec:
    """Tasks are numbered 0..size-1 over the groups in order of their names, then by replica, then by completion."""

    name: Name
    groups: Annotated[tuple[GroupSpec, ...], Items(GROUPS_MOST, 1)]
    gang: bool = False
    after: tuple[Dependency, ...] = ()
    on: Line = ""  # executors, nodes or labels, with commas between; empty: anywhere
    cluster: Line = ""  # which one; the yard sets it when `on` names one, and then the job runs nowhere else
    env: Env = field(default_factory=dict)
    workdir: Path = ""
    policy: RunPolicy = field(default_factory=RunPolicy)
    submitter: Submitter = field(default_factory=Submitter)
    staging: StagingSpec = field(default_factory=StagingSpec)
    kubernetes: KubernetesSpec = field(default_factory=KubernetesSpec)
    container: ContainerSpec = field(default_factory=ContainerSpec)
    training: Training | None = None
    elastic: Elastic | None = None  # only with one group; the spec itself says the size that it has now

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(sorted(self.groups, key=lambda group: group.name)))

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The first task number of each group, and the size of the job at the end."""
        return (0, *accumulate(group.size for group in self.groups))

    @property
    def size(self) -> int:
        return self.offsets[-1]

    @property
    def failure_policy(self) -> FailurePolicy:
        ends_together = self.gang or self.is_one_object
        return self.policy.on_failure or (FailurePolicy.STOP if ends_together else FailurePolicy.CONTINUE)

    @property
    def is_one_object(self) -> bool:
        """On a cluster: is it admitted, and does it fail, as a whole? Only tasks of an Indexed Job fail one by one."""
        if not self.cluster:
            return False
        is_indexed = len(self.groups) == 1 and self.groups[0].count == 1
        return not is_indexed or bool(self.kubernetes.manifest or self.kubernetes.kind)

    @property
    def starts_together(self) -> bool:
        """Do all its tasks need resources at the same time (gang scheduling)?"""
        return self.gang or self.elastic is not None or self.is_one_object

    @property
    def is_one_attempt(self) -> bool:
        """Is it tried again as a whole? Then on a cluster another attempt is another object, and Kubernetes retries
        nothing."""
        return self.gang or (self.training is not None and self.size == 1)

    @property
    def training_size(self) -> Size:
        return Size(self.groups[0].count, self.groups[0].resources.gpus)

    @property
    def steps_per_epoch(self) -> int | None:
        """Of one process, where the submitter told the sizes of batch and set: each GPU takes its own batches."""
        training = self.training
        if training is None or not training.batch_size or not training.training_set_size:
            return None
        processes = max(1, self.training_size.gpus) * (self.size if self.gang else 1)
        return max(1, training.training_set_size // (training.batch_size * processes))

    def with_notes(self, *sentences: str) -> JobSpec:
        """The same job, of which the submitter is told more."""
        return replace(self, submitter=replace(self.submitter, notes=(*self.submitter.notes, *sentences)))

    def with_shell(self, variables: Mapping[str, str], stored_as: str = "") -> JobSpec:
        """The same job with these variables of the submitting shell, or with the name under which they are stored."""
        return replace(self, submitter=replace(self.submitter, inherited_env=variables, environment=stored_as))

    def sized(self, size: Size) -> JobSpec:
        """The same job with that size."""
        group = self.groups[0]
        resources = replace(group.resources, gpus=size.gpus)
        return replace(self, groups=(replace(group, count=size.workers, resources=resources),))

    def place_of(self, number: int) -> TaskPlace:
        group = bisect_right(self.offsets, number) - 1
        replica, completion = divmod(number - self.offsets[group], self.groups[group].completions)
        return TaskPlace(group, replica, completion)

    def label_of(self, number: int) -> str:
        """The task's address without the job: `3`, `worker/3`, `worker/3.1`; arrays by their own ids."""
        place = self.place_of(number)
        group = self.groups[place.group]
        if group.array is not None:
            label = str(group.array.id_of(place.completion))
        elif group.count == 1 and group.completions > 1 and not group.name:
            label = str(place.completion)
        elif group.completions > 1:
            label = f"{place.replica}.{place.completion}"
        else:
            label = str(place.replica)
        return f"{group.name}/{label}" if group.name else label

    def number_of(self, label: str) -> int:
        """The inverse of `label_of`. A group of one replica or a job of one group may leave the obvious out."""
        name, _, index = label.rpartition("/")
        candidates = [
            i for i, group in enumerate(self.groups) if group.name == name or (not name and len(self.groups) == 1)
        ]
        if candidates:
            group = self.groups[candidates[0]]
            ordinal = _ordinal(group, index)
            if ordinal is not None:
                return self.offsets[candidates[0]] + ordinal
        first, last = self.label_of(0), self.label_of(self.size - 1)
        known = f"its tasks are {first} to {last}" if self.size > 1 else f"its only task is {first}"
        raise NotFound(f"job {self.name!r} has no task {label!r}; {known}")


def _ordinal(group: GroupSpec, index: str) -> int | None:
    first, dot, second = index.partition(".")
    number, completion = whole_number(first), whole_number(second)
    if number is None or (dot and completion is None):
        return None
    if group.array is not None:
        return None if dot else group.array.ordinal_of(number)
    if completion is not None:
        fits = number < group.count and completion < group.completions
        return number * group.completions + completion if fits else None
    if group.completions > 1 and group.count > 1:
        return None
    return number if number < group.size else None
