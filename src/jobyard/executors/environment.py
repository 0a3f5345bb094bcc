"""Environment of a task: which variables does it find?

Two layers, so that what all tasks share crosses the wire once: `job_environment`, and on top `task_environment`, which
has only the task's own names. The agent adds paths (YARD_OUTPUT_DIR, YARD_CHECKPOINT_DIR, YARD_SPOOL, YARD_ERROR_FILE,
TMPDIR) last. Later wins: the submitting shell, the user's variables, a group's variables, ours.
Names that other systems taught people's code to read are set only where they fit: a stray LOCAL_RANK makes Lightning
and accelerate go distributed.
"""

from __future__ import annotations

import json
import os
import shlex
import zlib
from collections.abc import Sequence
from dataclasses import replace

from jobyard.errors import UserError
from jobyard.model.environment import SCRIPT, YARD_NAMES
from jobyard.model.job import Command, GroupSpec, JobSpec, Script, TaskPlace
from jobyard.model.node import Node
from jobyard.model.placeholders import SLOT
from jobyard.model.resources import Placement
from jobyard.model.substitution import SLOT_HOLE, placeholders_of, row_of, substituted, variables_of, words_with

DEFAULT_MASTER_ADDRESS = "127.0.0.1"

# Variables that the yard sets for a task: a job that is submitted from inside a task must not inherit them.
_ARRAY_NAMES = frozenset(
    {"SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT"}
    | {"SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX"}
)
_SBATCH_NAMES = frozenset({"SLURM_JOB_NAME", "SLURM_SUBMIT_DIR", "SLURM_CPUS_PER_TASK"})
_GROUP_NAMES = frozenset(
    {"JOB_INDEX", "JOB_GLOBAL_INDEX", "JOB_COMPLETION_INDEX"}
    | {"GLOBAL_REPLICAS", "REPLICATED_JOB_NAME", "REPLICATED_JOB_REPLICAS"}
)
_GANG_NAMES = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"}
    | {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}
)
_AICHOR_NAMES = frozenset({"AICHOR_EXPERIMENT_ID", "AICHOR_USER_NAME", "AICHOR_INPUT_PATH"})
_TRAINING_NAMES = frozenset(
    {"JOB_UUID", "JOB_RESTARTED", "HEARTBEAT_FREQ", "NODELIST", "NUM_GPUS", "NUM_NODES", "RESERVED_MEM", "EPOCHS_DONE"}
    | {"EPOCHS_TO_BE_DONE", "BATCH_SIZE", "TRAINING_SET_SIZE", "TF_CONFIG", "PL_TORCH_DISTRIBUTED_BACKEND"}
    | {"KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_SERVER_TOKEN", "KUBEFLOW_TRAINER_SERVER_CA_CERT"}
)
TOLD_BY_INDEX = frozenset({"ml-scheduler"})  # sources whose users are told a GPU by its number, and so their tasks
_DEVICE_NAMES = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})
_OTHER_NAMES = (
    _ARRAY_NAMES | _SBATCH_NAMES | _GROUP_NAMES | _GANG_NAMES | _AICHOR_NAMES | _TRAINING_NAMES | _DEVICE_NAMES
)
_OF_A_TASK = YARD_NAMES | _OTHER_NAMES | {"TMPDIR"}


def job_environment(job_id: str, number: int, spec: JobSpec) -> dict[str, str]:
    """What all tasks of a job share, the submitter's own variables included."""
    env = {**_inherited(spec), **spec.env, "YARD_JOB_ID": job_id, "YARD_JOB_NAME": spec.name}
    script = spec.groups[0].command.script
    if script is not None:  # once for all tasks: an array of a thousand sends its text once
        env[SCRIPT] = script.text
        if script.is_for_sbatch:  # not SLURM_NTASKS or SLURM_PROCID: with them Lightning waits for others
            env["SLURM_JOB_ID"], env["SLURM_JOB_NAME"] = str(number), spec.name
    array = spec.groups[0].array if len(spec.groups) == 1 else None
    if array is not None:
        env["SLURM_JOB_ID"] = env["SLURM_ARRAY_JOB_ID"] = str(number)
        env["SLURM_ARRAY_TASK_COUNT"] = str(len(array))
        env["SLURM_ARRAY_TASK_MIN"] = str(array.lowest)
        env["SLURM_ARRAY_TASK_MAX"] = str(array.highest)
    if any(group.name for group in spec.groups):
        env["GLOBAL_REPLICAS"] = str(sum(group.count for group in spec.groups))
    if spec.submitter.source == "aichor":
        # The agent knows where output goes: AICHOR_OUTPUT_PATH is its YARD_OUTPUT_DIR and a slash.
        env["AICHOR_EXPERIMENT_ID"] = job_id
        env["AICHOR_USER_NAME"] = spec.submitter.user
        env["AICHOR_INPUT_PATH"] = spec.workdir.rstrip("/") + "/"
    return env


def task_environment(
    job_id: str,
    spec: JobSpec,
    task_number: int,
    attempt: int,
    slot_placement: Placement,
    node: Node | None = None,
    *,
    addresses: Sequence[str] = (),
    resumes_at: int | None = None,
) -> dict[str, str]:
    """What one attempt has beyond `job_environment`. `node` tells device ids; `addresses` are those of a gang's ranks.

    `resumes_at` are the epochs that its checkpoint here covers; None: there is no checkpoint.
    """
    place = spec.place_of(task_number)
    group = spec.groups[place.group]
    label = spec.label_of(task_number)
    env = {
        **group.env,
        "YARD_GROUP": group.name,
        "YARD_TASK": label,
        "YARD_ATTEMPT": str(attempt),
        "YARD_NODE": slot_placement.node,
        **_devices(slot_placement, node, by_index=spec.submitter.source in TOLD_BY_INDEX),
    }
    if (row := row_of(group.command, task_number - spec.offsets[place.group])) is not None:
        env.update(variables_of(group.command, row))
    if group.array is not None:
        env["SLURM_ARRAY_TASK_ID"] = label.rpartition("/")[2]
        env["SLURM_RESTART_COUNT"] = str(attempt - 1)
    if group.name:
        env.update(_of_group(spec, group, place))
    if spec.gang:
        env.update(_of_gang(spec, task_number, job_id, slot_placement, _address(addresses, 0)))
    if spec.training is not None:
        env.update(_of_training(job_id, spec, env, slot_placement, resumes_at, addresses))
    if spec.training is not None or resumes_at is not None:
        env["YARD_EPOCHS_DONE"] = str(resumes_at or 0)
        env["YARD_RESUMED"] = "0" if resumes_at is None else "1"
    return env


def task_command(spec: JobSpec, task_number: int) -> tuple[str, ...]:
    """The argv of one task. Raises UserError where a line would become code: no such job was ever submitted."""
    place = spec.place_of(task_number)
    command = spec.groups[place.group].command
    ordinal = task_number - spec.offsets[place.group]
    if command.lines is not None:
        return ("bash", "-c", command.lines[ordinal])
    row = row_of(command, ordinal) if command.argv else None
    if row is None:
        return shared_command(command)
    words = shared_command(replace(command, argv=words_with(command, row)))
    return _with_slot(words) if any(SLOT_HOLE in word for word in words) else words


def _with_slot(words: Sequence[str]) -> tuple[str, ...]:
    """By way of a shell, for only the task itself knows its slot."""
    quoted = (f'"${{{SLOT}}}"'.join(shlex.quote(part) for part in word.split(SLOT_HOLE)) for word in words)
    return ("sh", "-c", f"exec {' '.join(quoted)}")


def shared_command(command: Command) -> tuple[str, ...]:
    """What all tasks run, each with its own variables; only in `argv` are there still placeholders of each task."""
    if command.script is not None:
        return _of_script(command.script, command.argv)
    if command.argv:
        return command.argv
    if command.inputs is None:
        return ("bash", "-c", command.shell)
    return ("bash", "-c", substituted(command.shell, placeholders_of(command)).shell)


def _of_script(script: Script, arguments: Sequence[str]) -> tuple[str, ...]:
    """Writes the text that came with the job into a file, and becomes its interpreter."""
    name = shlex.quote(os.path.basename(script.name) or "script")
    submit_directory = "\nexport SLURM_SUBMIT_DIR=$PWD" if script.is_for_sbatch else ""
    begin = f"""umask 077
d=$(mktemp -d "${{TMPDIR:-/tmp}}/yard-script.XXXXXX") && printf %s "${SCRIPT}" >"$d/"{name} || exit 126
unset {SCRIPT}{submit_directory}
exec {shlex.join(script.interpreter)} "$d/"{name} "$@\""""
    return ("sh", "-c", begin, "jobyard", *arguments)


def _inherited(spec: JobSpec) -> dict[str, str]:
    dropped = _OF_A_TASK if "YARD_JOB_ID" in spec.submitter.inherited_env else YARD_NAMES
    return {name: value for name, value in spec.submitter.inherited_env.items() if name not in dropped}


def _devices(placement: Placement, node: Node | None, *, by_index: bool = False) -> dict[str, str]:
    """Always set: without it a task sees every GPU of the machine."""
    if not placement.devices:
        return {"CUDA_VISIBLE_DEVICES": ""}
    known = {device.index: device for device in node.devices} if node is not None else {}
    devices = [known.get(piece.index) for piece in placement.devices]
    uuids = [device.uuid for device in devices if device is not None and device.uuid and not device.fake]
    if len(uuids) == len(placement.devices) and not (by_index and _have_numbers(uuids)):
        return {"CUDA_VISIBLE_DEVICES": ",".join(uuids)}
    # Our indices are NVML's, which counts by bus id; CUDA counts fastest first unless told.
    indices = ",".join(str(piece.index) for piece in placement.devices)
    return {"CUDA_VISIBLE_DEVICES": indices, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _have_numbers(uuids: Sequence[str]) -> bool:
    """CUDA numbers whole GPUs; a slice of one has no number."""
    return not any(uuid.startswith("MIG-") for uuid in uuids)


def _of_group(spec: JobSpec, group: GroupSpec, place: TaskPlace) -> dict[str, str]:
    """JobSet's names. They count replicas, not tasks, over the groups in order of their names."""
    before = sum(other.count for other in spec.groups[: place.group])
    return {
        "JOB_INDEX": str(place.replica),
        "JOB_GLOBAL_INDEX": str(before + place.replica),
        "JOB_COMPLETION_INDEX": str(place.completion),
        "REPLICATED_JOB_NAME": group.name,
        "REPLICATED_JOB_REPLICAS": str(group.count),
    }


def _address(addresses: Sequence[str], rank: int) -> str:
    return (addresses[rank] if rank < len(addresses) else "") or DEFAULT_MASTER_ADDRESS


def _of_training(
    job_id: str,
    spec: JobSpec,
    env: dict[str, str],
    placement: Placement,
    resumes_at: int | None,
    addresses: Sequence[str],
) -> dict[str, str]:
    """KubeProfiler's names. What the user did not tell is not set; what it would crash without has a harmless value."""
    assert spec.training is not None
    training, nodes = spec.training, spec.size if spec.gang else 1
    reserved = placement.devices[0].memory_mib if placement.devices else 0
    address = env.get("MASTER_ADDR", DEFAULT_MASTER_ADDRESS)
    port = _port(env.get("MASTER_PORT"), job_id)
    rank = int(env.get("RANK", 0))
    workers = [f"{_address(addresses, index)}:{port + 1 + index}" for index in range(nodes)]
    told = {
        "EPOCHS_TO_BE_DONE": training.epochs,
        "YARD_EPOCHS": training.epochs,
        "BATCH_SIZE": training.batch_size,
        "TRAINING_SET_SIZE": training.training_set_size,
    }
    return {
        "JOB_UUID": job_id,
        "JOB_RESTARTED": "FALSE" if resumes_at is None else "TRUE",
        "EPOCHS_DONE": str(resumes_at or 0),
        "HEARTBEAT_FREQ": str(training.heartbeat_steps),
        "YARD_HEARTBEAT": str(training.heartbeat_steps),
        "NODE_RANK": str(rank),
        "NODELIST": placement.node,
        "NUM_GPUS": str(max(1, len(placement.devices))),  # 0 would be divided by
        "NUM_NODES": str(nodes),
        "WORLD_SIZE": str(nodes),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "RESERVED_MEM": str(reserved),
        "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}),
        "PL_TORCH_DISTRIBUTED_BACKEND": "nccl" if "GPU-" in env["CUDA_VISIBLE_DEVICES"] else "gloo",
        **{name: str(value) for name, value in told.items() if value is not None},
    }


def _port(asked: str | None, job_id: str) -> int:
    """Of the first rank. Raises UserError where the user's own is none.

    By the job's id, which no other yard of the machine has: the first jobs of two users run at the same time.
    """
    if asked is None:
        return 20000 + zlib.crc32(job_id.encode()) % 10000  # below Linux's ephemeral ports, which begin at 32768
    try:
        return int(asked)
    except ValueError:
        raise UserError(f"MASTER_PORT {asked!r} is no number; give a port, like 29500") from None


def _of_gang(spec: JobSpec, rank: int, job_id: str, placement: Placement, address: str) -> dict[str, str]:
    """torch's names. Each task sees only its own devices, so each is a node of its own and its local rank is 0."""
    port = str(_port(None, job_id))
    asked = {**spec.env, **spec.groups[spec.place_of(rank).group].env}
    address = asked.get("MASTER_ADDR", address)
    port = asked.get("MASTER_PORT", port)
    return {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(spec.size),
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": str(rank),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "PET_NNODES": str(spec.size),
        "PET_NPROC_PER_NODE": str(max(1, placement.resources.gpus)),
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
    }
