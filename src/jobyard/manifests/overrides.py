"""Overrides: what may flags and `#YARD` directives say about a job, and how do they change it?"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from jobyard.errors import UserError
from jobyard.manifests.arrays import parse_array
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.files import lines_of, read_text
from jobyard.manifests.kinds import parse_kind, with_kind
from jobyard.manifests.training import (
    TrainingWords,
    parse_span,
    size_problem,
    training_with,
    with_gpus,
    with_workers,
    workers_problem,
)
from jobyard.model import substitution
from jobyard.model.environment import YARD_NAMES
from jobyard.model.job import Dependency, GroupSpec, JobSpec, Lines
from jobyard.model.kubernetes import Volume
from jobyard.model.resources import Resources
from jobyard.model.units import parse_cpu_millis, parse_duration_seconds, parse_percent, parse_size_mib, whole_number

RESERVED_NAMES = YARD_NAMES  # with them a task could report as another one

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_PREFIX = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")  # a label of RFC 1035
PREFIX_MOST = 20
_LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Overrides(TrainingWords):
    """Everything is optional; what is None or empty leaves the job as it was written down."""

    name: str | None = None
    priority: int | None = None
    timeout: str | None = None
    cpus: str | None = None
    mem: str | None = None
    mem_limit: str | None = None  # on or off: is a task ended that uses more memory than that?
    gpus: str | int | None = None  # 2, 1..8, 1..
    workers: str | int | None = None
    gpu_mem: str | None = None
    gpu_util: str | None = None
    whole_node: bool | None = None
    env: tuple[str, ...] = ()  # K=V, or K alone: as in the submitting shell
    workdir: str | None = None
    array: str | None = None
    each_line: str | None = None
    after: tuple[str, ...] = ()
    retries: int | None = None
    max_fails: int | None = None
    on: str | None = None
    limit: int | None = None
    copy_forward: tuple[str, ...] = ()
    copy_backwards: tuple[str, ...] = ()
    no_copy: bool | None = None
    image: str | None = None
    container: bool | None = None  # on machines: in containers of the image
    volume: tuple[str, ...] = ()  # CLAIM:PATH[:ro], on a cluster
    kind: str | None = None  # pytorchjob or rayjob, on a cluster
    min_gpu_mem: str | None = None  # GiB of each GPU itself
    name_prefix: str | None = None


# A flag, and the field of Overrides that it sets.
FLAGS = {f"--{field.name.replace('_', '-')}": field.name for field in fields(Overrides)}
FLAGS |= {"-e": "env", "--exclusive": "whole_node"}
WHOLE_NUMBERS = frozenset({"priority", "retries", "max_fails", "limit", "epochs", "batch_size", "training_set_size"})
REPEATABLE = frozenset({"env", "after", "copy_forward", "copy_backwards", "volume"})
SWITCHES = frozenset({"whole_node", "no_copy", "preemptible", "container"})  # flags without a value


def merge(below: Overrides, above: Overrides) -> Overrides:
    """What `above` says wins; variables of both count, and a name in both has the value of `above`."""
    said = {field.name: value for field in fields(Overrides) if (value := getattr(above, field.name)) not in (None, ())}
    if "env" in said:
        said["env"] = (*below.env, *above.env)
    return replace(below, **said)


def apply(spec: JobSpec, overrides: Overrides, context: SubmitContext) -> JobSpec:
    """The job with what the flags say in place of what it said itself. Raises UserError; `spec` is not changed."""
    env = parse_env(overrides.env, context.environ)
    groups = tuple(_with_flags(group, overrides, env) for group in spec.groups)
    changed = replace(spec, groups=groups, env={**spec.env, **env}, after=parse_after(overrides.after) or spec.after)
    if overrides.name is not None:
        changed = replace(changed, name=parse_name(overrides.name, "--name"))
    if overrides.name_prefix is not None:
        changed = replace(changed, name=f"{parse_prefix(overrides.name_prefix, '--name-prefix')}-{changed.name}")
    if overrides.priority is not None:
        changed = _with_policy(changed, priority=_whole(overrides.priority, "--priority", least=-_LARGEST))
    if overrides.timeout is not None:
        changed = _with_policy(changed, timeout_seconds=parse_duration_seconds(overrides.timeout, "--timeout"))
    if overrides.workdir is not None:
        changed = replace(changed, workdir=parse_workdir(overrides.workdir, context, "--workdir"))
    if overrides.retries is not None:
        changed = _with_policy(changed, retries=_whole(overrides.retries, "--retries"))
    if overrides.max_fails is not None:
        changed = _with_policy(changed, max_fails=_whole(overrides.max_fails, "--max-fails"))
    if overrides.on is not None:
        changed = replace(changed, on=parse_on(overrides.on, "--on"))
    if overrides.image is not None:
        image = parse_image(overrides.image, "--image")
        changed = replace(changed, container=replace(changed.container, image=image))
    if overrides.container is not None:
        changed = replace(changed, container=replace(changed.container, on_machines=overrides.container))
    if overrides.volume:
        volumes = tuple(parse_volume(text, "--volume") for text in overrides.volume)
        changed = replace(changed, kubernetes=replace(changed.kubernetes, volumes=volumes))
    changed = _with_copies(changed, overrides)
    changed = spread(changed, overrides.array, overrides.each_line, context)
    if overrides.limit is not None:
        changed = _with_policy(changed, limit=_whole(overrides.limit, "--limit", least=1))
    changed = _with_training(changed, overrides)
    if overrides.kind is not None:
        kind = parse_kind(overrides.kind, "--kind")
        changed = replace(changed, kubernetes=replace(changed.kubernetes, kind=kind))
    changed = with_kind(changed, "kind" if overrides.kind is None else "--kind")
    _refuse_nul(changed)
    return changed


def _with_policy(spec: JobSpec, **changes: Any) -> JobSpec:
    return replace(spec, policy=replace(spec.policy, **changes))


def _with_training(spec: JobSpec, overrides: Overrides) -> JobSpec:
    """What the flags say of epochs and sizes. Last, because arrays and limits may contradict it."""
    spec = replace(spec, training=training_with(spec.training, overrides))
    if overrides.gpus is not None:
        spec = with_gpus(spec, parse_span(overrides.gpus, "--gpus"))
    if overrides.workers is not None:
        spec = with_workers(spec, parse_span(overrides.workers, "--workers", least=1))
        if problem := workers_problem(spec):
            raise UserError(f"--workers: {problem}")
    if contradiction := size_problem(spec):
        name, sentence = contradiction
        raise UserError(f"{name if getattr(overrides, name) is None else f'--{name}'}: {sentence}")
    return spec


def spread(
    spec: JobSpec,
    array: str | None,
    each_line: str | None,
    context: SubmitContext,
    *,
    fields: tuple[str, str] = ("--array", "--each-line"),
) -> JobSpec:
    """The job of one command as a job of many tasks: one per array id, or one per line of a file."""
    if array is None and each_line is None:
        return spec
    if array is not None and each_line is not None:
        raise UserError(f"{fields[0]} and {fields[1]} cannot be used together; give the one whose tasks you want")
    asked = fields[0] if array is not None else fields[1]
    group = spec.groups[0]
    if group.command.lines is not None:
        raise UserError(
            f"{asked}: a batch file has one task per line already; leave {asked} out, or run: yard run -- CMD"
        )
    if group.name:
        raise UserError(f"{asked}: the job has groups, whose count and completions say how many tasks; leave it out")
    if array is not None:
        ids, limit = parse_array(array, asked)
        group = replace(group, array=ids, completions=len(ids), command=replace(group.command, entries=None))
        return _with_policy(replace(spec, groups=(group,)), limit=limit or spec.policy.limit)
    assert each_line is not None
    lines = lines_of(read_text(each_line, context, asked))
    if not lines:
        raise UserError(f"{asked}: {each_line!r} is empty; it needs one line per task")
    command = replace(group.command, entries=Lines.of(lines))
    substitution.check(command)
    return replace(spec, groups=(replace(group, array=None, completions=len(lines), command=command),))


def _with_copies(spec: JobSpec, overrides: Overrides) -> JobSpec:
    """The paths that the flags name, inside the working directory that they left the job with."""
    if overrides.no_copy:
        asked = "--copy-forward" if overrides.copy_forward else "--copy-backwards"
        if overrides.copy_forward or overrides.copy_backwards:
            raise UserError(f"--no-copy and {asked} cannot be used together; leave one of them out")
        return replace(spec, staging=replace(spec.staging, no_copy=True, copy_forward=(), copy_back=()))
    if overrides.copy_forward:
        paths = tuple(parse_copied(path, spec.workdir, "--copy-forward") for path in overrides.copy_forward)
        spec = replace(spec, staging=replace(spec.staging, copy_forward=paths))
    if overrides.copy_backwards:
        paths = tuple(
            parse_copied(path, spec.workdir, "--copy-backwards", must_exist=False) for path in overrides.copy_backwards
        )
        spec = replace(spec, staging=replace(spec.staging, copy_back=paths))
    return spec


def parse_copied(text: str, workdir: str, field: str, *, must_exist: bool = True) -> str:
    """A path inside the working directory, relative to it; `.` is all of it. Links are not followed."""
    path = os.path.normpath(os.path.join(workdir, os.path.expanduser(text)))
    inside = os.path.relpath(path, workdir or ".")
    if os.path.isabs(text) and inside.startswith(
        ".."
    ):  # an absolute path, while the working directory was reached through a link
        inside = os.path.relpath(path, os.path.realpath(workdir or "."))
    if not text or "\0" in text or inside == ".." or inside.startswith("../"):
        raise UserError(f"{field}: {text!r} is not inside the working directory {workdir}; name a path below it")
    if must_exist and not os.path.lexists(path):
        raise UserError(f"{field}: {text!r} does not exist; create it or name another (looked for {path})")
    return inside


def parse_on(text: str, field: str) -> str:
    """Nodes, labels or executors, with commas between. Whether they exist is for the yard to say."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UserError(
            f"{field}: a name is missing in {text!r}; write a node, a label or an executor, as in gpu1,gpu2"
        )
    return ",".join(dict.fromkeys(names))


def parse_image(text: str, field: str) -> str:
    """A container image's name; whether there is one is for the cluster to say."""
    if not text or not text.isprintable() or any(character.isspace() for character in text):
        raise UserError(f"{field}: {text!r} is not an image; write one as in registry.lab/team/train:1")
    return text


def parse_volume(text: str, field: str) -> Volume:
    """`CLAIM:PATH`, or `CLAIM:PATH:ro` for reading only."""
    claim, _, rest = text.partition(":")
    path, _, mode = rest.partition(":")
    if not _CLAIM.fullmatch(claim) or not path.startswith("/") or mode not in ("", "ro", "rw"):
        raise UserError(
            f"{field}: {text!r} is not a volume; write CLAIM:PATH or CLAIM:PATH:ro, with the name of a "
            "PersistentVolumeClaim and an absolute path"
        )
    return Volume(claim, path, read_only=mode == "ro")


def parse_name(text: str, field: str) -> str:
    """A job's name: any printable text up to 200 characters; a slash would read as a task's address."""
    name = text.strip()
    if not name or len(name) > 200 or "/" in name or not name.isprintable():
        raise UserError(f"{field}: {text!r} is not a name; write 1 to 200 printable characters without a slash")
    return name


def parse_prefix(text: str, field: str) -> str:
    """What begins the name of a job and of its objects."""
    if not _PREFIX.fullmatch(text) or len(text) > PREFIX_MOST:
        raise UserError(
            f"{field}: {text!r} cannot begin a name; write up to {PREFIX_MOST} of a-z, 0-9 and -, a letter first"
        )
    return text


def parse_workdir(text: str, context: SubmitContext, field: str) -> str:
    """An absolute path of a directory that exists; a relative one starts at the submit directory."""
    path = os.path.normpath(os.path.join(context.workdir, os.path.expanduser(text)))
    if not text or "\0" in text or not os.path.isdir(path):
        raise UserError(f"{field}: {text!r} is not a directory; create it or name another (looked for {path})")
    return path


def parse_env(entries: tuple[str, ...], environ: Mapping[str, str], field: str = "--env") -> dict[str, str]:
    """`K=V` as written; `K` alone takes the submitting shell's value. The last one of a name wins."""
    env: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        check_variable(name, field)
        if not equals:
            if name not in environ:
                raise UserError(f"{field}: {name} is not set in this shell; write {name}=VALUE or export it first")
            value = environ[name]
        env[name] = value
    return env


def check_variable(name: str, field: str) -> None:
    if not _VARIABLE.fullmatch(name):
        raise UserError(f"{field}: {name!r} is not a variable's name; write letters, digits and _, as in SEED=42")
    if name in RESERVED_NAMES:
        raise UserError(f"{field}: {name} is set by the yard itself; choose another name")


def parse_after(texts: tuple[str, ...], field: str = "--after") -> tuple[Dependency, ...]:
    """`ID` and `afterok:ID` wait for success, `afterany:ID` for any end; Slurm's `afterok:1:2,afterany:3` too."""
    dependencies = []
    for text in texts:
        for part in text.split(","):
            kind, colon, rest = part.strip().partition(":")
            if not colon:
                kind, rest = "afterok", kind
            if kind not in ("afterok", "afterany"):
                raise UserError(f"{field}: unknown kind {kind!r} in {text!r}; write ID, afterok:ID or afterany:ID")
            for job in rest.split(":"):
                if not job.strip():
                    raise UserError(f"{field}: no job is named in {text!r}; write ID, afterok:ID or afterany:ID")
                dependencies.append(Dependency(job.strip(), needs_success=kind == "afterok"))
    return tuple(dependencies)


@dataclass(frozen=True, slots=True)
class ResourceWords:
    """What was written about one task's resources; None: nothing."""

    cpus: str | None = None
    memory: str | None = None
    memory_limit: bool | None = None
    gpus: int | None = None
    gpu_memory: str | None = None
    gpu_utilization: str | None = None
    whole_node: bool | None = None


def resources_with(resources: Resources, said: ResourceWords, field: str) -> Resources:
    """`resources` with what is said instead; `field` shows where it was written, as in `--{}`."""
    if said.cpus is not None:
        resources = replace(resources, cpu_millis=parse_cpu_millis(said.cpus, field.format("cpus")))
    if said.memory is not None:
        limit = True if resources.memory_limit is None else resources.memory_limit  # what was asked for is held
        mib = parse_size_mib(said.memory, field.format("mem"))
        resources = replace(resources, memory_mib=mib, memory_limit=limit)
    if said.memory_limit is not None:
        if said.memory_limit and not resources.memory_mib:
            name = field.format("mem-limit")
            raise UserError(f"{name}: no amount of memory was asked for that could be a limit; say how much, as in 4G")
        resources = replace(resources, memory_limit=said.memory_limit)
    if said.whole_node is not None:
        resources = replace(resources, whole_node=said.whole_node)
    if said.gpus is not None:
        resources = replace(resources, gpus=_whole(said.gpus, field.format("gpus")))
    if said.gpus == 0:
        for name, share in (("gpu-mem", said.gpu_memory), ("gpu-util", said.gpu_utilization)):
            if share is not None:
                raise UserError(f"{field.format(name)}: {share!r} of no GPU; leave it out or ask for a GPU")
        resources = replace(resources, gpu_memory_mib=0, gpu_percent=0)
    if said.gpu_memory is not None:
        mib = parse_size_mib(said.gpu_memory, field.format("gpu-mem"))
        resources = replace(resources, gpus=resources.gpus or 1, gpu_memory_mib=mib)
    if said.gpu_utilization is not None:
        percent = parse_percent(said.gpu_utilization, field.format("gpu-util"))
        resources = replace(resources, gpus=resources.gpus or 1, gpu_percent=percent)
    return resources


def _with_flags(group: GroupSpec, overrides: Overrides, env: Mapping[str, str]) -> GroupSpec:
    gpus = None if overrides.gpus is None else parse_span(overrides.gpus, "--gpus")[0]
    limit = None if overrides.mem_limit is None else parse_switch(overrides.mem_limit, "--mem-limit")
    amounts = (overrides.cpus, overrides.mem, limit, gpus, overrides.gpu_mem, overrides.gpu_util, overrides.whole_node)
    said = ResourceWords(*amounts)
    if overrides.min_gpu_mem is not None:
        group = replace(group, least_device_mib=parse_device_mib(overrides.min_gpu_mem, "--min-gpu-mem"))
    own_env = {name: value for name, value in group.env.items() if name not in env}  # a flag wins over a group too
    resources = resources_with(group.resources, said, field="--{}")
    if overrides.min_gpu_mem is not None and not resources.gpus:
        if gpus == 0:
            raise UserError(f"--min-gpu-mem: {overrides.min_gpu_mem!r} of no GPU; leave it out or ask for a GPU")
        resources = replace(resources, gpus=1)
    return replace(group, resources=resources, env=own_env)


def parse_switch(text: str, field: str) -> bool:
    if text not in ("on", "off"):
        raise UserError(f"{field}: {text!r} is neither on nor off; write one of them")
    return text == "on"


def parse_device_mib(text: str, field: str) -> int:
    """GiB without a unit, as data sheets have it; or with one."""
    mib = parse_size_mib(f"{text}GiB" if whole_number(str(text)) is not None else text, field, "GiB")
    if mib < 1:
        raise UserError(f"{field}: {text!r} is no memory of a GPU; write GiB, as in 40")
    return mib


def _whole(value: int, field: str, least: int = 0) -> int:
    if not least <= value <= _LARGEST:
        raise UserError(f"{field}: {value} is out of range; write a whole number from {least} to {_LARGEST}")
    return value


def _refuse_nul(spec: JobSpec) -> None:
    """No program can be started with a NUL character in its arguments or variables; entries come from a text file."""
    for group in spec.groups:
        if any("\0" in text for text in (*group.command.argv, group.command.shell)):
            raise UserError("command: it holds a NUL character, which no program can be given; remove it")
        for name, value in (*group.env.items(), *spec.env.items()):
            if "\0" in value:
                raise UserError(f"env: the value of {name} holds a NUL character, which no program can be given")
