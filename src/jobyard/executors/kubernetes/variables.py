"""Variables of a pod: what does it find in its environment, and where does each value come from?

The names and the values are those of `executors/environment.py`: it is asked for the first task of a group, and what
differs from task to task is replaced here. In order of preference a value comes

1. from a label or annotation that the Job or JobSet controller puts on the pod, through the downward API,
2. from another variable, which Kubernetes expands: `worker/$(JOB_INDEX)`,
3. from a few lines of `sh` before the command, where a sum or a row of a table is needed.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from typing import Any, NamedTuple

from jobyard.executors.environment import job_environment, shared_command, task_command, task_environment
from jobyard.executors.kubernetes import names, storage
from jobyard.executors.kubernetes.tables import DIRECTORY, Tables, has_own_commands
from jobyard.executors.kubernetes.value_lines import value_lines
from jobyard.executors.protocol import SubmittedJob
from jobyard.kubernetes.labels import INDEX_FAILURES, INDEX_REPLACED
from jobyard.model.environment import SET_BY_PYTORCHJOB
from jobyard.model.inputs import Inputs
from jobyard.model.job import GroupSpec, JobSpec
from jobyard.model.resources import DeviceSlice, Placement
from jobyard.model.substitution import own_variables, placeholders_of, words_of_sh

COMPLETION_INDEX = "metadata.labels['batch.kubernetes.io/job-completion-index']"  # of an Indexed Job's pods
FAILURES = f"metadata.annotations['{INDEX_FAILURES}']"
REPLACED = f"metadata.annotations['{INDEX_REPLACED}']"
_JOBSET = "metadata.labels['jobset.sigs.k8s.io/{}']"
JOB_INDEX = _JOBSET.format("job-index")
JOB_GLOBAL_INDEX = _JOBSET.format("job-global-index")
OF_JOBSET = {
    "JOB_INDEX": JOB_INDEX,
    "JOB_GLOBAL_INDEX": JOB_GLOBAL_INDEX,
    "GLOBAL_REPLICAS": _JOBSET.format("global-replicas"),
    "REPLICATED_JOB_NAME": _JOBSET.format("replicatedjob-name"),
    "REPLICATED_JOB_REPLICAS": _JOBSET.format("replicatedjob-replicas"),
}
NODE = "spec.nodeName"
ERROR_FILE = "/dev/termination-log"  # what a task writes there, Kubernetes keeps as its last message
REPORTS = "/run/jobyard"
SDK_DIRECTORY = "/opt/jobyard"
SDK = f"{SDK_DIRECTORY}/sdk.zip"

_EXPANDED = re.compile(r"\$+(?=\()|\${2,}")
# Places on the submitter's machine mean nothing in a container.
_LEFT_OUT = frozenset({"AICHOR_INPUT_PATH"})
_DEVICES = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})


class Pod(NamedTuple):
    """Which pods are spoken of: those of one group, in one attempt of a job, as part of the object `name`."""

    job: SubmittedJob
    attempt: int
    group_index: int
    name: str
    kind: str
    site: names.Site = names.Site()
    is_retried: bool = False  # by Kubernetes, pod by pod
    tables: Tables = Tables()
    resumes_at: int | None = None
    number: int | None = None  # only this task: then nothing is left to be found out in the pod

    @property
    def spec(self) -> JobSpec:
        return self.job.spec

    @property
    def is_jobset(self) -> bool:
        return self.kind == "JobSet"

    @property
    def is_training(self) -> bool:
        return self.spec.training is not None

    @property
    def shares_directories(self) -> bool:
        """Do all tasks have one place for checkpoints and one for output?"""
        return self.spec.gang or self.spec.size == 1

    @property
    def group(self) -> GroupSpec:
        return self.spec.groups[self.group_index]


class Variables:
    """The environment of the container, and the lines of sh that finish it."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}
        self.script: list[str] = []

    def __contains__(self, name: str) -> bool:
        """Is it there before the lines of sh?"""
        return name in self._known

    @property
    def env(self) -> list[dict[str, Any]]:
        return [{"name": name, **body} for name, body in self._known.items()]

    def literal(self, name: str, value: str) -> None:
        self._known[name] = {"value": unexpanded(value)}

    def composed(self, name: str, value: str) -> None:
        """Of variables that were named before: it goes to the end, for Kubernetes reads them in order."""
        self._known.pop(name, None)
        self._known[name] = {"value": value}

    def field(self, name: str, path: str) -> None:
        self._known[name] = {"valueFrom": {"fieldRef": {"fieldPath": path}}}

    def annotation(self, name: str, key: str) -> None:
        self.field(name, f"metadata.annotations['{key}']")

    def leave_out(self, left: Iterable[str]) -> None:
        """What somebody else sets."""
        for name in left:
            self._known.pop(name, None)

    def computed(self, name: str, value: str) -> None:
        """By the shell; `value` is a word of sh."""
        self._known.pop(name, None)
        self.script.append(f"export {name}={value}")


def unexpanded(text: str) -> str:
    """As Kubernetes must be given a text that it is not to look for $(NAME) in."""
    return _EXPANDED.sub(lambda match: match[0] * 2, text)


def variables_of(pod: Pod) -> Variables:
    found = Variables()
    # 1. Where this pod stands: first, because others are composed of it.
    if pod.number is None and pod.kind in ("Job", "JobSet"):
        found.field("JOB_COMPLETION_INDEX", COMPLETION_INDEX)
    if pod.is_jobset:
        for name, path in OF_JOBSET.items() if pod.group.name else [("JOB_INDEX", JOB_INDEX)]:
            found.field(name, path)
    # 2. What all tasks of the group share, or what one has.
    for name, value in _shared(pod).items():
        if name not in found:
            found.literal(name, value)
    if pod.kind == "PyTorchJob":
        found.leave_out(SET_BY_PYTORCHJOB)
    _add_places(found, pod)
    # 3. What is each task's own.
    if pod.number is None:
        _add_own(found, pod)
    elif pod.kind == "Job":
        found.literal("JOB_COMPLETION_INDEX", str(pod.spec.place_of(pod.number).completion))
    return found


def _add_places(found: Variables, pod: Pod) -> None:
    """Where things are in a pod, the same in all."""
    found.field("YARD_NODE", NODE)
    found.literal("YARD_ERROR_FILE", ERROR_FILE)
    found.literal("YARD_CHECKPOINT_DIR", storage.CHECKPOINTS)
    found.literal("YARD_OUTPUT_DIR", storage.OUTPUT)
    if pod.spec.submitter.source == "aichor":
        found.literal("AICHOR_OUTPUT_PATH", f"{storage.OUTPUT}/")
    if pod.is_training:
        found.field("NODELIST", NODE)
        found.literal("YARD_SPOOL", f"{REPORTS}/spool")
        found.literal("YARD_STOP_FILE", f"{REPORTS}/stop")
        found.literal("PL_TORCH_DISTRIBUTED_BACKEND", "nccl" if pod.group.resources.gpus else "gloo")
        _add_sdk(found, pod)


def _add_sdk(found: Variables, pod: Pod) -> None:
    """Behind what the user and the image have: an SDK of their own wins."""
    known = {**pod.spec.env, **pod.group.env}.get("PYTHONPATH", "")
    if pod.kind == "RayJob":  # its operator makes the command, and so there is no line of sh before it
        found.literal("PYTHONPATH", f"{known}:{SDK}" if known else SDK)
    else:
        found.script.append(f'export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{SDK}"')


def _add_own(found: Variables, pod: Pod) -> None:
    _add_attempt(found, pod)
    if pod.kind == "PyTorchJob":
        _add_index_by_rank(found, pod)
    else:
        _add_rows(found, pod)
        _add_label(found, pod)
        if pod.spec.gang:
            _add_rank(found, pod)
    if pod.is_training:
        _add_training(found, pod)


def command_of(pod: Pod, variables: Variables) -> list[str]:
    """What the container runs. With lines of sh before it, they end by becoming the command."""
    command = pod.group.command
    script = list(variables.script)
    if pod.number is not None:
        argv = list(task_command(pod.spec, pod.number))
    elif has_own_commands(pod.group):
        script.append(f'exec bash -c "{_row("commands", pod)}"')
        argv = []
    else:
        argv = list(shared_command(command))
        if command.is_each and any(map(placeholders_of(command).stands_in, command.argv)):
            before = map(shlex.quote, argv[: len(argv) - len(command.argv)])
            script.append(" ".join(["exec", *before, *words_of_sh(command)]))
            argv = []
    if script and argv:
        script.append('exec "$@"')
    if script:
        argv = ["sh", "-c", "\n".join(["set -eu", *script]), "jobyard", *argv]
    return [unexpanded(word) for word in argv]


def _quoted(text: str) -> str:
    """For a part of a word of sh."""
    return shlex.quote(text) if text else ""


def _shared(pod: Pod) -> dict[str, str]:
    """As machines have it for the group's first task, except what only a machine knows."""
    spec, resources = pod.spec, pod.group.resources
    devices = tuple(DeviceSlice(index, resources.gpu_memory_mib) for index in range(resources.gpus))
    own = task_environment(
        pod.job.id,
        spec,
        spec.offsets[pod.group_index] if pod.number is None else pod.number,
        pod.attempt,
        Placement("", resources, devices),
        addresses=_hosts(pod),
        resumes_at=pod.resumes_at,
    )
    shared = {**job_environment(pod.job.id, pod.job.number, spec), **own}
    if resources.gpus:  # the device plugin says which; without any, a task shall see none
        shared = {name: value for name, value in shared.items() if name not in _DEVICES}
    left_out = _LEFT_OUT if spec.submitter.source == "aichor" else ()
    return {name: value for name, value in shared.items() if name not in left_out}


def _hosts(pod: Pod) -> list[str]:
    """Where the tasks of a gang are reached, by rank; nobody asks for those of others."""
    spec = pod.spec
    if not spec.gang or spec.size == 1:
        return []
    if pod.kind == "PyTorchJob":  # each has a service of its own
        return [f"{pod.name}-master-0", *(f"{pod.name}-worker-{index}" for index in range(spec.size - 1))]
    if not pod.is_jobset:
        return [f"{pod.name}-{index}.{pod.name}" for index in range(spec.size)]
    places = map(spec.place_of, range(spec.size))
    return [names.host_name(pod.name, spec.groups[place.group], place.replica, place.completion) for place in places]


def _add_attempt(found: Variables, pod: Pod) -> None:
    """The attempt is in our label; where Kubernetes retries, it counts the pods of an index that failed, and
    those that it replaced for other reasons; of these it says nothing where there were none."""
    if not pod.is_retried:
        return found.field("YARD_ATTEMPT", f"metadata.labels['{names.ATTEMPT}']")
    found.field("YARD_RETRY", FAILURES)
    found.field("YARD_REPLACED", REPLACED)
    before = "YARD_RETRY + ${YARD_REPLACED:-0}"
    found.computed("YARD_ATTEMPT", f"$(({pod.attempt} + {before}))")
    if pod.group.array is not None:
        found.computed("SLURM_RESTART_COUNT", f"$(({pod.attempt - 1} + {before}))")


def _add_rows(found: Variables, pod: Pod) -> None:
    """The values and the array id of each task."""
    if pod.group.command.inputs is not None:
        _add_values(found, pod, pod.group.command.inputs)
    if pod.group.array is None:
        return
    first, _, step = pod.group.array.pieces[0]
    if pod.tables.ids is not None:
        found.computed("SLURM_ARRAY_TASK_ID", f'"{_row("ids", pod)}"')
    elif (first, step) == (0, 1):
        found.composed("SLURM_ARRAY_TASK_ID", "$(JOB_COMPLETION_INDEX)")
    else:
        found.computed("SLURM_ARRAY_TASK_ID", f"$(({first} + {step} * JOB_COMPLETION_INDEX))")


def _add_values(found: Variables, pod: Pod, inputs: Inputs) -> None:
    command = pod.group.command
    found.leave_out(variable.name for variable in own_variables(command))
    seq = f'"{_row("rows", pod)}"' if pod.tables.rows is not None else f"$(({_number(pod)} + 1))"
    found.script.extend(value_lines(command, inputs, seq, _file("", pod)))


def _row(table: str, pod: Pod) -> str:
    """A word of sh: this task's row."""
    return f"$(sed -n $(({_number(pod)} + 1))p {shlex.quote(_file(table, pod))})"


def _number(pod: Pod) -> str:
    """Arithmetic of sh: which task of its group is it? Counted over the replicas."""
    replicas = f"JOB_INDEX * {pod.group.completions} + " if pod.group.count > 1 else ""
    return f"{replicas}JOB_COMPLETION_INDEX"


def _file(table: str, pod: Pod) -> str:
    return f"{DIRECTORY}/{names.kind_name(pod.group)}.{table}"


def _add_label(found: Variables, pod: Pod) -> None:
    """YARD_TASK: what `JobSpec.label_of` says of each task."""
    group = pod.group
    prefix = f"{group.name}/" if group.name else ""
    replica = "$(JOB_INDEX)" if pod.is_jobset else "0"
    if group.array is not None and "SLURM_ARRAY_TASK_ID" not in found:
        return found.computed("YARD_TASK", f'{_quoted(prefix)}"$SLURM_ARRAY_TASK_ID"')
    if group.array is not None or (group.count == 1 and group.completions > 1 and not group.name):
        label = "$(JOB_COMPLETION_INDEX)"
    elif group.completions > 1:
        label = f"{replica}.$(JOB_COMPLETION_INDEX)"
    else:
        label = replica
    found.composed("YARD_TASK", unexpanded(prefix) + label)


def _add_rank(found: Variables, pod: Pod) -> None:
    """Ranks run over the groups in order of their names, then over replicas, then over completions."""
    if not pod.is_jobset:
        found.field("RANK", COMPLETION_INDEX)
    elif all(group.completions == 1 for group in pod.spec.groups):
        found.field("RANK", JOB_GLOBAL_INDEX)
    else:
        before = pod.spec.offsets[pod.group_index]
        found.computed("RANK", f"$(({before} + JOB_INDEX * {pod.group.completions} + JOB_COMPLETION_INDEX))")
    for name in ("NODE_RANK", "PET_NODE_RANK"):
        if "RANK" in found:
            found.composed(name, "$(RANK)")
        else:
            found.computed(name, '"$RANK"')


def _add_index_by_rank(found: Variables, pod: Pod) -> None:
    """Where an operator tells the rank, and nothing else that we could read, all other numbers follow from it."""
    group = pod.group
    prefix = f"{group.name}/" if group.name else ""
    inner = "0." if group.name and group.completions > 1 else ""
    found.computed("YARD_TASK", f'{_quoted(prefix + inner)}"$RANK"')
    found.computed("NODE_RANK", '"$RANK"')
    if group.name:
        for name in ("JOB_COMPLETION_INDEX",) if inner else ("JOB_INDEX", "JOB_GLOBAL_INDEX"):
            found.computed(name, '"$RANK"')


def _add_training(found: Variables, pod: Pod) -> None:
    """What TensorFlow needs, and for an elastic job what another size or attempt changes."""
    spec = pod.spec
    if spec.gang and spec.size > 1:
        _add_tensorflow(found, pod)
    if spec.elastic is None:
        return
    if spec.elastic.workers:
        for name in ("WORLD_SIZE", "NUM_NODES", "PET_NNODES") if pod.kind != "PyTorchJob" else ("NUM_NODES",):
            found.annotation(name, names.WORKERS)
    if spec.elastic.gpus:
        for name in ("NUM_GPUS", *(["PET_NPROC_PER_NODE"] if spec.gang else [])):
            found.annotation(name, names.GPUS)
    for name in ("EPOCHS_DONE", "YARD_EPOCHS_DONE"):
        found.annotation(name, names.EPOCHS_DONE)
    found.annotation("YARD_RESUMED", names.RESUMED)
    found.annotation("JOB_RESTARTED", names.RESTARTED)


def _add_tensorflow(found: Variables, pod: Pod) -> None:
    """The cluster is the same for all; the index in it is the rank."""
    config = json.loads(_shared(pod)["TF_CONFIG"])
    config["task"]["index"] = "RANK"
    before, after = json.dumps(config).split('"RANK"')
    if "RANK" in found:
        found.composed("TF_CONFIG", f"{before}$(RANK){after}")
    else:
        found.computed("TF_CONFIG", f'{shlex.quote(before)}"$RANK"{shlex.quote(after)}')
