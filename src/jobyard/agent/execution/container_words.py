"""Container command: as which command line does an attempt run in a container?

The runtime's own client is the attempt's process: its output is the task's, it hands signals on and ends with the
task's exit code. Variables go by name, so that no value is ever in a list of processes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from jobyard.agent.execution.runtimes import Runtime
from jobyard.agent.system import probe
from jobyard.agent_protocol.records import Paths

RUNTIME_FAILED = 125  # what the client ends with when it could not run the container
COMMAND_FAILED = (126, 127)  # or not the command in it, as shells have it
# What the client itself reads. A job that sets one of these means its task, so it goes through a file.
_OF_THE_CLIENT = re.compile(
    r"PATH|HOME|LD_.*|XDG_.*|DOCKER_.*|BUILDKIT_.*|PODMAN_.*|CONTAINERS?_.*|STORAGE_.*|REGISTRY_AUTH_.*"
    r"|(?i:https?_proxy|all_proxy|no_proxy)"
)
_PLAIN_BYTES = 60_000  # clients read files of variables by lines of at most 64 KiB
_OF_THE_REPORT_ENDPOINT = ("YARD_REPORT_ADDRESS", "KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_SERVER_TOKEN")
# The image's own PYTHONPATH must stay in reach, and only the runtime knows it: look, fetch the image if need be, go.
_BEGIN = """
look() { "$@" image inspect --format '{{range .Config.Env}}{{println .}}{{end}}' "$YARD_IMAGE" 2>/dev/null; }
found=$(look %(client)s) || { %(client)s pull "$YARD_IMAGE" >&2 || exit 125; found=$(look %(client)s); }
while IFS= read -r line; do
case $line in PYTHONPATH=?*) PYTHONPATH=${line#PYTHONPATH=}:$PYTHONPATH; export PYTHONPATH;; esac
done <<END
$found
END
unset YARD_IMAGE
exec "$@"
"""


class Container(NamedTuple):
    """What all attempts of a job in one slot share."""

    runtime: Runtime
    image: str
    mounts: Tuple[Tuple[str, str, bool], ...] = ()  # from, to, for reading only
    ports: Tuple[Tuple[int, int], ...] = ()  # of the machine, of the container
    shm_mib: int = 0  # of /dev/shm; 0: the machine's own
    cpu_millis: int = 0
    memory_mib: int = 0
    devices: Tuple[Tuple[int, str], ...] = ()  # index and uuid, if that is known; fake ones are not among them
    yard: str = ""
    reads_stdin: bool = False


class Call(NamedTuple):
    """A command, its own environment, and what has to be in a file beside it."""

    argv: List[str]
    env: Dict[str, str]
    file: str  # NAME=value lines; empty: there is no need for one


def from_message(message: Dict[str, Any]) -> Container:
    """As the agent hands it to a lane."""
    runtime = Runtime(*message["runtime"])
    return Container(
        runtime._replace(command=tuple(runtime.command), limits=tuple(runtime.limits)),
        message["image"],
        tuple((source, target, bool(read_only)) for source, target, read_only in message["mounts"]),
        tuple((outside, inside) for outside, inside in message["ports"]),
        message["shm_mib"],
        message["cpu_millis"],
        message["memory_mib"],
        tuple((index, uuid) for index, uuid in message["devices"]),
        message["yard"],
        bool(message.get("reads_stdin")),
    )


def state_label(state_dir: str) -> str:
    """Whose containers they are: job ids of different yards may be the same, and nodes may share an engine."""
    owner = "%s:%s" % (probe.host(), os.path.realpath(state_dir))
    return hashlib.sha256(owner.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def name_of(state_dir: str, attempt: str) -> str:
    """There can be no two of one name, so there are never two containers of one attempt."""
    return "yard-%s-%s" % (state_label(state_dir), re.sub(r"[^A-Za-z0-9_.-]", "_", attempt))


def file_of_id(files: Paths) -> str:
    """Where the runtime writes the container's id."""
    return files.record[: -len("rec")] + "cid"


def file_of_variables(files: Paths) -> str:
    return files.record[: -len("rec")] + "env"


def call_of(
    container: Container,
    state_dir: str,
    attempt: str,
    files: Paths,
    directory: str,
    argv: List[str],
    inside: Dict[str, str],
    outside: Dict[str, str],
    shared: Sequence[str],
) -> Call:
    """`inside` is what the task finds in its environment, `outside` what the client finds in its own; `shared` are
    paths that all attempts may read, the SDK first.

    Raises ValueError for a value that cannot be told to the client.
    """
    runtime = container.runtime
    inside = _adapted(container, inside, files)
    kept = {name: value for name, value in inside.items() if _OF_THE_CLIENT.fullmatch(name)}
    named = sorted(name for name in inside if name not in kept)
    words = [*runtime.command, "run", "--rm", "--init", "--name", name_of(state_dir, attempt)]
    words += ["--cidfile", file_of_id(files), *(["--interactive"] if container.reads_stdin else [])]
    for label, value in (("attempt", attempt), ("yard", container.yard), ("state", state_label(state_dir))):
        words += ["--label", "jobyard.%s=%s" % (label, value)]
    words += ["--log-driver", "none", "--security-opt", "label=disable"]
    words += [*_limits(container), *_network(container), *_devices(container), *_user(runtime)]
    words += ["--shm-size", "%dm" % container.shm_mib] if container.shm_mib else ["--ipc", "host"]
    words += [*_mounts(container, state_dir, attempt, directory, shared), "--workdir", directory]
    if kept:
        words += ["--env-file", file_of_variables(files)]
    for name in named:
        words += ["--env", name]
    words += ["--entrypoint", argv[0], container.image, *argv[1:]]
    env = {**outside, **{name: inside[name] for name in named}}
    if inside.get("PYTHONPATH") not in shared[:1]:  # the job says itself what it is, or there is nothing to add
        return Call(words, env, _lines(kept))
    begin = _BEGIN % {"client": " ".join(map(shlex.quote, runtime.command))}
    return Call(["/bin/sh", "-c", begin, "sh", *words], {**env, "YARD_IMAGE": container.image}, _lines(kept))


def _adapted(container: Container, inside: Dict[str, str], files: Paths) -> Dict[str, str]:
    """What is different in a container: devices are counted anew, a user without an entry has no home."""
    inside = dict(inside)
    if container.devices and not all(uuid for _, uuid in container.devices):
        inside["CUDA_VISIBLE_DEVICES"] = ",".join(str(place) for place in range(len(container.devices)))
    if not container.devices:
        inside["NVIDIA_VISIBLE_DEVICES"] = "void"  # images say `all`, and some machines do as they say
    if container.ports:  # a network of its own, from which the report endpoint cannot be reached
        for name in _OF_THE_REPORT_ENDPOINT:
            inside.pop(name, None)
    if os.getuid() and not container.runtime.is_rootless:
        inside.setdefault("HOME", files.tmp)
    return inside


def _limits(container: Container) -> List[str]:
    words = []
    can = container.runtime.limits
    if container.memory_mib and "memory" in can:
        words += ["--memory", "%dm" % container.memory_mib]
        if "swap" in can:  # as much as memory alone: what does not fit is not swapped
            words += ["--memory-swap", "%dm" % container.memory_mib]
    if container.cpu_millis and "cpus" in can:
        words += ["--cpus", "%g" % (container.cpu_millis / 1000.0)]
    return words


def _network(container: Container) -> List[str]:
    """The machine's own, as a plain process has it, so that tasks reach other ranks and the report endpoint."""
    if not container.ports:
        return ["--network", "host"]
    words = []
    for outside, inside in container.ports:
        words += ["--publish", "%d:%d" % (outside, inside)]
    return words


def _devices(container: Container) -> List[str]:
    if not container.devices:
        return []
    if container.runtime.kind == "docker":
        names = ",".join(uuid or str(index) for index, uuid in container.devices)
        return ["--gpus", '"device=%s"' % names]
    words = []
    for index, _ in container.devices:
        words += ["--device", "nvidia.com/gpu=%d" % index]
    return words


def _user(runtime: Runtime) -> List[str]:
    """Files that a task writes belong to whom they would belong to without a container."""
    if runtime.is_rootless:
        return []
    words = ["--user", "%d:%d" % (os.getuid(), os.getgid())]
    for group in sorted(set(os.getgroups()) - {os.getgid()}):
        words += ["--group-add", str(group)]
    return words


def _mounts(container: Container, state_dir: str, attempt: str, directory: str, shared: Sequence[str]) -> List[str]:
    job = "%s/jobs/%s" % (state_dir, attempt.rsplit(".", 2)[0])
    mounts = [(job, job, False)]
    if directory != job and not directory.startswith(job + "/"):
        mounts.append((directory, directory, False))
    mounts += [(path, path, True) for path in shared if os.path.exists(path)]
    mounts += container.mounts
    words = []
    for source, target, read_only in mounts:
        parts = ["type=bind", "source=" + source, "target=" + target, *(["readonly"] if read_only else [])]
        words += ["--mount", ",".join(map(_field, parts))]
    return words


def _field(text: str) -> str:
    """As CSV has it, which is how runtimes read mounts."""
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


def _lines(variables: Dict[str, str]) -> str:
    lines = []
    for name, value in sorted(variables.items()):
        if "\n" in value or "\r" in value or len(os.fsencode(value)) > _PLAIN_BYTES:
            raise ValueError(
                "the value of %s cannot be handed to a container: it has several lines, or too long a one" % name
            )
        lines.append("%s=%s\n" % (name, value))
    return "".join(lines)
