"""Native manifest: which job does it describe? The tables here define it: reading and `yard schema` both use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jobyard.errors import UserError
from jobyard.manifests.arrays import parse_array
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.documents import Part
from jobyard.manifests.fields import (
    Choice,
    Field,
    FieldType,
    Flag,
    ListOf,
    MapOf,
    Parsed,
    RecordType,
    Scalar,
    Schema,
    TextType,
    Whole,
)
from jobyard.manifests.files import name_from_file
from jobyard.manifests.kinds import KINDS, parse_kind
from jobyard.manifests.overrides import (
    Overrides,
    ResourceWords,
    apply,
    check_variable,
    parse_after,
    parse_copied,
    parse_name,
    parse_on,
    parse_volume,
    parse_workdir,
    resources_with,
    spread,
)
from jobyard.manifests.training import (
    IDLE_GPU,
    SPAN_PATTERN,
    Span,
    parse_log_dir,
    parse_span,
    size_problem,
    with_gpus,
    with_workers,
    workers_problem,
)
from jobyard.model.container import ContainerSpec
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.kubernetes import KubernetesSpec
from jobyard.model.policy import FailurePolicy, RunPolicy
from jobyard.model.resources import Resources
from jobyard.model.staging import Staging
from jobyard.model.training import IDLE_GPU_SECONDS, Training
from jobyard.model.units import parse_cpu_millis, parse_duration_seconds, parse_percent, parse_size_mib


@dataclass(frozen=True)
class CommandKind(FieldType):
    """Text is a line of bash, a list is a program and its arguments."""

    def read(self, part: Part, path: str) -> Command:
        if isinstance(part.value, list):
            words = ListOf(Scalar(), least=1).read(part, path)
            if not words[0].strip():
                raise part.error(path, "the program's name is empty; write the program first")
            return Command(argv=tuple(words))
        text = TextType(wanted="a bash command, or a list of a program and its arguments").read(part, path)
        if not text.strip():
            raise part.error(path, "is empty; write what to run")
        return Command(shell=text)

    def schema(self) -> Schema:
        words = {"type": "array", "items": {"type": ["string", "number", "boolean"]}, "minItems": 1}
        return {"anyOf": [{"type": "string", "pattern": r"\S"}, words]}


def _as_written(check: Callable[[str, str], object]) -> Callable[[str, str], str]:
    """A parser that only checks: `Overrides` and `spread` take the text itself."""

    def parse(text: str, path: str) -> str:
        check(text, path)
        return text

    return parse


def _grace(text: str, path: str) -> float:
    return 0.0 if text.strip() in ("0", "0s") else parse_duration_seconds(text, path)


def _dependencies(text: str, path: str) -> str:
    parse_after((text,), path)
    return text


_NAMES = r"^\s*[^,\s][^,]*(,\s*[^,\s][^,]*)*$"
_AMOUNT = {"type": ["string", "number"]}
SIZE = Parsed(_as_written(parse_size_mib), _AMOUNT, "a size such as 512M or 24GB")
CPUS = Parsed(_as_written(parse_cpu_millis), _AMOUNT, "a number of cores such as 2, 0.5 or 500m")
SHARE = Parsed(_as_written(parse_percent), _AMOUNT, "a share such as 0.5 or 50%")
DURATION = Parsed(parse_duration_seconds, _AMOUNT, "a duration such as 90s, 1h30m or 02:30:00")
PATH = TextType(r"\S", "a path inside the working directory")


def _span(least: int) -> Parsed:
    whole = {"type": "integer", "minimum": least, "maximum": 2**31 - 1}
    span = {"type": "string", "pattern": SPAN_PATTERN}
    wanted = "a number, or a range such as 1..8"
    return Parsed(lambda text, path: parse_span(text, path, least=least), {"anyOf": [whole, span]}, wanted)


ENV = MapOf(Scalar(), TextType(r"^[A-Za-z_][A-Za-z0-9_]*$", "a variable's name, such as SEED"))
GROUP_NAME = TextType(
    r"^[a-z][a-z0-9-]{0,62}$", "lower-case letters, digits and hyphens, a letter first, at most 63 characters"
)

RESOURCES = RecordType(
    {
        "cpus": Field(CPUS, "Cores of one task; fractions and 500m are understood.", 1),
        "memory": Field(SIZE, "Memory of one task: 512M, 24GB, or a number of MiB. Left out: not reserved."),
        "memory_limit": Field(Flag(), "End a task that uses more memory than it asked for. Left out: yes, if it did."),
        "gpus": Field(_span(0), "GPUs of one task: 2; or a range, 1..8 or 1.., for training that can be resized.", 0),
        "gpu_memory": Field(
            SIZE, "Memory on each GPU; the rest is shared with others. Left out: whole GPUs. Alone it means one GPU."
        ),
        "gpu_utilization": Field(
            SHARE, "Share of each GPU's compute, 0.5 or 50%; the rest is shared with others. Alone it means one GPU."
        ),
        "whole_node": Field(Flag(), "A node for itself; the amounts say how large it must be at least.", False),
    }
)

GROUP = RecordType(
    {
        "count": Field(Whole(), "Replicas of this group; 0: none.", 1),
        "completions": Field(Whole(1), "Tasks in each replica.", 1),
        "parallelism": Field(Whole(1), "At most so many tasks at once in each replica. Left out: all."),
        "command": Field(CommandKind(), "As at the top level, which it replaces."),
        "resources": Field(RESOURCES, "As at the top level; what is not said here is taken from there."),
        "env": Field(ENV, "Variables of this group's tasks, beside those of the top level."),
    }
)

TRAINING = RecordType(
    {
        "epochs": Field(Whole(1), "How many epochs there are in all."),
        "batch_size": Field(Whole(1), "Samples in one step of one worker."),
        "training_set_size": Field(Whole(1), "Samples in one epoch."),
        "estimate": Field(DURATION, "Your guess how long it takes; the first epoch corrects it."),
        "preemptible": Field(
            Flag(), "Whether it may be stopped for others. Left out: once it has said that it stops at checkpoints."
        ),
        "checkpoint_deadline": Field(
            DURATION,
            "How long it may take to its next checkpoint once asked to stop. Left out: ten minutes, or two epochs.",
        ),
        "log_dir": Field(
            Parsed(parse_log_dir, {"type": "string", "pattern": r"\S"}, "a directory"), "What TensorBoard reads."
        ),
        "idle_gpu": Field(Choice(IDLE_GPU), "What is done about a GPU that it holds and does not use.", "warn"),
        "idle_gpu_after": Field(DURATION, "So long it may hold a GPU and not use it.", int(IDLE_GPU_SECONDS)),
    }
)

MANIFEST = RecordType(
    {
        "$schema": Field(TextType(), "For editors; not read."),
        "name": Field(Parsed(parse_name, {"type": "string"}, "a name"), "The job's name. Left out: the file's."),
        "command": Field(
            CommandKind(), "What each task runs: text is a line of bash, a list a program and its arguments."
        ),
        "resources": Field(RESOURCES, "What one task needs."),
        "env": Field(ENV, "Variables of all tasks."),
        "workdir": Field(
            TextType(), "Where the tasks run. Left out: the directory of submission, where a relative path starts."
        ),
        "array": Field(
            Parsed(_as_written(parse_array), {"type": ["string", "integer"]}, "array ids such as 0-99%10"),
            "One task per id: 0-99, 0-99%10 (10 at once), 1-9:2, 1,3,5-7.",
        ),
        "each_line": Field(TextType(), "A file; one task per line of it, which replaces {} and is in YARD_LINE."),
        "priority": Field(Whole(None), "Higher goes first.", 0),
        "timeout": Field(DURATION, "How long each attempt at a task may take."),
        "deadline": Field(DURATION, "How long the whole job may take from its first start."),
        "retries": Field(Whole(), "How often a failed task is tried again.", 0),
        "max_fails": Field(Whole(), "One more failed task than this stops the job."),
        "on_failure": Field(
            Choice(tuple(policy.value for policy in FailurePolicy)),
            "What a failed task does to the others. Left out: stop in gangs, else continue.",
        ),
        "after": Field(
            ListOf(Parsed(_dependencies, {"type": "string"}, "a job"), or_one=True),
            "Jobs to wait for: ID or afterok:ID (must succeed), afterany:ID (must end).",
        ),
        "on": Field(
            Parsed(parse_on, {"type": "string", "pattern": _NAMES}, "nodes or labels, as in gpu1,gpu2"),
            "Nodes, labels or executors to run on, with commas between. Left out: anywhere.",
        ),
        "copy_forward": Field(
            ListOf(PATH, or_one=True),
            "Paths in the working directory that are sent to other machines. Left out: all of it.",
        ),
        "copy_backwards": Field(
            ListOf(PATH, or_one=True),
            "Paths whose new or changed files are brought back from other machines. Left out: the working directory.",
        ),
        "gang": Field(Flag(), "All tasks start and stop together.", False),
        "grace": Field(Parsed(_grace, _AMOUNT, "a duration such as 10s"), "Time between SIGTERM and SIGKILL.", 10),
        "limit": Field(Whole(1), "At most so many tasks of the job at once."),
        "image": Field(TextType(), "A container image; on machines it is used only with container."),
        "container": Field(
            Flag(), "Run tasks in containers of the image on machines too, with docker or podman.", False
        ),
        "volumes": Field(
            ListOf(Parsed(parse_volume, {"type": "string", "pattern": "^[^:]+:/"}, "CLAIM:PATH"), or_one=True),
            "PersistentVolumeClaims of a cluster and where tasks find them: CLAIM:PATH, or CLAIM:PATH:ro.",
        ),
        "kind": Field(
            Parsed(parse_kind, {"enum": [*KINDS, *KINDS.values()]}, "pytorchjob or rayjob"),
            "As which object it runs on a Kubernetes cluster. Left out: a Job or a JobSet, by its shape.",
        ),
        "workers": Field(
            _span(1), "The job as a gang of so many tasks; or a range, as in 1..4, for training that can be resized."
        ),
        "training": Field(TRAINING, "What is known of a training; an empty one says that it is one."),
        "groups": Field(MapOf(GROUP, GROUP_NAME, least=1), "Kinds of workers, by name."),
    },
    rules={"anyOf": [{"required": ["command"]}, {"required": ["groups"]}]},
)


def schema() -> Schema:
    """The JSON Schema of a native manifest."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Jobyard job",
        "description": "A job for `yard run FILE`, in YAML or JSON.",
        **MANIFEST.schema(),
    }


def spec_from_native(document: Part, overrides: Overrides, context: SubmitContext) -> JobSpec:
    """The job that a manifest and the flags describe. Raises UserError with file, line, field and the way out."""
    given = MANIFEST.read(document, "")
    said = MANIFEST.filled(given)
    _refuse_contradictions(document, given)
    workdir = _workdir(document, said["workdir"], context)
    spec = JobSpec(
        name=said["name"] or name_from_file(document.file),
        groups=_groups(document, given),
        gang=said["gang"],
        after=parse_after(tuple(said["after"] or ())),
        on=said["on"] or "",
        env=_env(document, said["env"] or {}),
        workdir=workdir,
        policy=RunPolicy(
            priority=said["priority"],
            limit=said["limit"],
            timeout_seconds=said["timeout"],
            deadline_seconds=said["deadline"],
            retries=said["retries"],
            max_fails=said["max_fails"],
            on_failure=FailurePolicy(said["on_failure"]) if said["on_failure"] else None,
            grace_seconds=float(said["grace"]),
        ),
        submitter=context.submitter("native", _notes(said, overrides)),
        staging=Staging(
            copy_forward=_copied(document, "copy_forward", said, workdir),
            copy_back=_copied(document, "copy_backwards", said, workdir),
        ),
        kubernetes=KubernetesSpec(said["kind"] or "", volumes=tuple(said["volumes"] or ())),
        container=ContainerSpec(said["image"] or "", on_machines=said["container"]),
        training=_training(given),
    )
    if overrides.array is None and overrides.each_line is None:  # a flag replaces either
        spec = _spread(document, spec, said, context)
    spec = _with_sizes(document, spec, given)
    if not _changes_sizes(overrides):
        _refuse_impossible_sizes(document, spec, given)
    return apply(spec, overrides, context)


def _groups(document: Part, given: Mapping[str, Any]) -> tuple[GroupSpec, ...]:
    top = _resources(Resources(), given.get("resources") or {}, document, "resources")
    if "groups" not in given:
        if "command" not in given:
            raise document.error("command", "is missing; write what to run, or groups that say it")
        return (GroupSpec(given["command"], resources=top),)
    groups = []
    for name, own in given["groups"].items():
        where = f"groups.{name}"
        said = GROUP.filled(own)
        command = said["command"] or given.get("command")
        if command is None:
            raise document.at("groups", name).error(where, "has no command, and there is none at the top level to take")
        if said["count"] > 0:
            groups.append(
                GroupSpec(
                    command,
                    name=name,
                    count=said["count"],
                    completions=said["completions"],
                    parallelism=said["parallelism"],
                    resources=_resources(top, said["resources"] or {}, document, f"{where}.resources"),
                    env=_env(document.at("groups", name), said["env"] or {}, f"{where}.env"),
                )
            )
    if not groups:
        raise document.at("groups").error("groups", "every count is 0, so there is nothing to run; give one a count")
    return tuple(groups)


def _training(given: Mapping[str, Any]) -> Training | None:
    if "training" not in given:
        return None
    said = TRAINING.filled(given["training"])
    return Training(
        epochs=said["epochs"],
        batch_size=said["batch_size"],
        training_set_size=said["training_set_size"],
        estimated_seconds=said["estimate"],
        preemptible=said["preemptible"],
        yield_seconds=said["checkpoint_deadline"],
        log_dir=said["log_dir"] or "",
        idle_gpu_stop=said["idle_gpu"] == "stop",
        idle_gpu_seconds=float(said["idle_gpu_after"]),
    )


def _with_sizes(document: Part, spec: JobSpec, given: Mapping[str, Any]) -> JobSpec:
    """With the ranges that its GPUs and workers may have."""
    spans = [span for _, span in _gpu_spans(given)]
    wide = next((span for span in spans if span[0] < span[1]), None)
    if wide is not None:
        spec = with_gpus(spec, wide)
    if "workers" not in given:
        return spec
    if "groups" in given:
        raise document.at("workers").error("workers", "the job has groups, whose count says how many; leave it out")
    return with_workers(spec, given["workers"])


def _gpu_spans(given: Mapping[str, Any]) -> list[tuple[str, Span]]:
    """Of each group that runs, and where it is written."""
    top: Span = given.get("resources", {}).get("gpus", (0, 0))
    if "groups" not in given:
        return [("resources.gpus", top)]
    spans = []
    for name, group in given["groups"].items():
        own = (group.get("resources") or {}).get("gpus")
        if group.get("count", 1) > 0:
            spans.append((f"groups.{name}.resources.gpus", own) if own else ("resources.gpus", top))
    return spans


def _changes_sizes(overrides: Overrides) -> bool:
    """Flags may correct a contradiction in the manifest."""
    said = (overrides.gpus, overrides.workers, overrides.array, overrides.each_line, overrides.limit)
    return any(value is not None for value in (*said, overrides.whole_node))


def _refuse_impossible_sizes(document: Part, spec: JobSpec, given: Mapping[str, Any]) -> None:
    if "workers" in given and (problem := workers_problem(spec)):
        raise document.at("workers").error("workers", problem)
    if contradiction := size_problem(spec):
        name, sentence = contradiction
        path = "workers"
        if name == "gpus":
            path = next((path for path, span in _gpu_spans(given) if span[0] < span[1]), "resources.gpus")
        raise document.at(*path.split(".")).error(path, sentence)


def _resources(inherited: Resources, own: Mapping[str, Any], document: Part, path: str) -> Resources:
    names = {"mem": "memory", "mem-limit": "memory_limit", "gpu-mem": "gpu_memory", "gpu-util": "gpu_utilization"}
    amounts = {**own, "gpus": own["gpus"][0]} if "gpus" in own else own  # of a range: the smallest
    try:
        return resources_with(inherited, ResourceWords(**amounts), field="{}")
    except UserError as error:
        field, _, message = str(error).partition(": ")
        field = names.get(field, field)
        raise document.at(*path.split("."), field).error(f"{path}.{field}", message) from None


def _env(part: Part, env: Mapping[str, str], path: str = "env") -> dict[str, str]:
    for name in env:
        try:
            check_variable(name, path)
        except UserError as error:
            raise UserError(f"{part.file}: line {part.at('env', name).line}: {error}") from None
    return dict(env)


def _workdir(document: Part, text: str | None, context: SubmitContext) -> str:
    if text is None:
        return context.workdir
    try:
        return parse_workdir(text, context, "workdir")
    except UserError as error:
        raise UserError(f"{document.file}: line {document.at('workdir').line}: {error}") from None


def _copied(document: Part, key: str, said: Mapping[str, Any], workdir: str) -> tuple[str, ...]:
    try:
        return tuple(parse_copied(path, workdir, key, must_exist=key == "copy_forward") for path in said[key] or ())
    except UserError as error:
        raise UserError(f"{document.file}: line {document.at(key).line}: {error}") from None


def _spread(document: Part, spec: JobSpec, said: Mapping[str, Any], context: SubmitContext) -> JobSpec:
    try:
        return spread(spec, said["array"], said["each_line"], context, fields=("array", "each_line"))
    except UserError as error:
        key = "array" if said["array"] is not None else "each_line"
        raise UserError(f"{document.file}: line {document.at(key).line}: {error}") from None


def _refuse_contradictions(document: Part, given: Mapping[str, Any]) -> None:
    if not given.get("gang"):
        return
    if "limit" in given:
        raise document.at("limit").error("limit", "a gang starts all its tasks together; leave limit or gang out")
    for name, group in given.get("groups", {}).items():
        if group.get("parallelism", group.get("completions", 1)) < group.get("completions", 1):
            part = document.at("groups", name, "parallelism")
            raise part.error(f"groups.{name}.parallelism", "a gang starts all its tasks together; leave it or gang out")


def _notes(said: Mapping[str, Any], overrides: Overrides) -> tuple[str, ...]:
    image, on = said["image"], overrides.on if overrides.on is not None else said["on"] or ""
    if not image or said["container"] or overrides.container or "kubernetes" in on.split(","):
        return ()
    return (f"image {image!r} is not used: tasks run as plain processes on machines",)
