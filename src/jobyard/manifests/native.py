"""Native manifest: which job does it describe? `job_fields.py` declares its keys, `yard schema` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.declarations import Table, keys_of, put, with_keys
from jobyard.manifests.field_values import ENV
from jobyard.manifests.fields import Field, FieldType, ListOf, MapOf, RecordType, Scalar, Schema, TextType, Whole
from jobyard.manifests.files import name_from_file, read_stdin
from jobyard.manifests.job_fields import RESOURCES, TOP_LEVEL, TRAINING
from jobyard.manifests.notation import copied_paths, env_of, parse_output, parse_workdir
from jobyard.manifests.overrides import Overrides, apply
from jobyard.manifests.parts import Part
from jobyard.manifests.resource_words import least_device_mib, resources_with
from jobyard.manifests.skipping import without_existing
from jobyard.manifests.spreading import FIELDS, SPREADING, spread
from jobyard.manifests.training import Span, size_problem, with_gpus, with_workers, workers_problem
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.limits import TaskCount, TaskLimit
from jobyard.model.resources import Resources
from jobyard.model.training import Training


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


GROUP_NAME = TextType(
    r"^[a-z][a-z0-9-]{0,62}$", "lower-case letters, digits and hyphens, a letter first, at most 63 characters"
)
_RESOURCES = RecordType(keys_of(RESOURCES))
GROUP = RecordType(
    {
        "count": Field(Whole.within(TaskCount), "Replicas of this group; 0: none.", 1),
        "completions": Field(Whole.within(TaskLimit), "Tasks in each replica.", 1),
        "parallelism": Field(Whole.within(TaskLimit), "At most so many tasks at once in each replica. Left out: all."),
        "command": Field(CommandKind(), "As at the top level, which it replaces."),
        "resources": Field(_RESOURCES, "As at the top level; what is not said here is taken from there."),
        "env": Field(ENV, "Variables of this group's tasks, beside those of the top level."),
    }
)


def manifest_of(*tables: Table) -> RecordType:
    """A manifest with the keys of these tables, beside those that hold others."""
    fields: dict[str, Field] = {
        "$schema": Field(TextType(), "For editors; not read."),
        "command": Field(
            CommandKind(), "What each task runs: text is a line of bash, a list a program and its arguments."
        ),
        "groups": Field(MapOf(GROUP, GROUP_NAME, least=1), "Kinds of workers, by name."),
        "resources": Field(_RESOURCES, "What one task needs."),
        "training": Field(
            RecordType(keys_of(TRAINING)), "What is known of a training; an empty one says that it is one."
        ),
    }
    for table in tables:
        fields |= keys_of(table)
    return RecordType(fields, rules={"anyOf": [{"required": ["command"]}, {"required": ["groups"]}]})


MANIFEST = manifest_of(*TOP_LEVEL)


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
    _refuse_contradictions(document, given)
    spec = JobSpec(
        name=name_from_file(document.file),
        groups=_groups(document, given, context),
        env=env_of(document, ("env",), given.get("env", {}), context),
        workdir=_workdir(document, given.get("workdir"), context),
        submitter=context.submitter("native", _notes(given, overrides)),
        training=Training() if "training" in given else None,
    )
    for table in TOP_LEVEL:
        spec = with_keys(spec, table, given)
    spec = with_keys(spec, TRAINING, given.get("training", {}))
    spec = _with_copies(document, spec, given)
    if "stdin" in given and "stdin" not in overrides:
        spec = _with_stdin(document, spec, given["stdin"], context)
    spec = _with_outputs(document, spec, given, context)
    if overrides.keys().isdisjoint(SPREADING):  # flags replace all that it says of tasks
        spec = _spread(document, spec, given, context)
    spec = _with_sizes(document, spec, given)
    if not _changes_sizes(overrides):
        _refuse_impossible_sizes(document, spec, given)
    if "skip_existing" in given and "skip_existing" not in overrides:
        skip = partial(without_existing, pattern=given["skip_existing"], field="skip_existing")
        context = replace(context, leave_out=(skip, *context.leave_out))
    try:
        return apply(spec, overrides, context)
    except UserError as error:
        raise _with_line(document, error) from None


def _with_line(document: Part, error: UserError) -> UserError:
    """The same with file and line, if it is about a key of the manifest and not about a flag."""
    part = document.get(error.field)
    return part.error(error.field, error.sentence) if part is not None else error


def _groups(document: Part, given: Mapping[str, Any], context: SubmitContext) -> tuple[GroupSpec, ...]:
    top = _resources(Resources(), given.get("resources") or {}, document, "resources")
    least = least_device_mib(0, top.gpus, given.get("resources") or {}, str)
    if "groups" not in given:
        if "command" not in given:
            raise document.error("command", "is missing; write what to run, or groups that say it")
        return (GroupSpec(given["command"], resources=top, least_device_mib=least),)
    groups = []
    for name, own in given["groups"].items():
        where = f"groups.{name}"
        said = GROUP.filled(own)
        command = said["command"] or given.get("command")
        if command is None:
            raise document.at("groups", name).error(where, "has no command, and there is none at the top level to take")
        if said["count"] > 0:
            resources = _resources(top, said["resources"] or {}, document, f"{where}.resources")
            groups.append(
                GroupSpec(
                    command,
                    name=name,
                    count=said["count"],
                    completions=said["completions"],
                    parallelism=said["parallelism"],
                    resources=resources,
                    least_device_mib=least_device_mib(least, resources.gpus, said["resources"] or {}, str),
                    env=env_of(document, ("groups", name, "env"), said["env"] or {}, context),
                )
            )
    if not groups:
        raise document.at("groups").error("groups", "every count is 0, so there is nothing to run; give one a count")
    return tuple(groups)


def _with_sizes(document: Part, spec: JobSpec, given: Mapping[str, Any]) -> JobSpec:
    """With the ranges that its GPUs and workers may have."""
    spans = [span for _, span in _gpu_spans(given)]
    wide = next((span for span in spans if span[0] < span[1]), None)
    if wide is not None:
        spec = with_gpus(spec, wide[:2])
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
    return not overrides.keys().isdisjoint({"gpus", "workers", "limit", "whole_node", *SPREADING})


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
    try:
        return resources_with(inherited, own, shown=str)
    except UserError as error:
        raise document.at(*path.split("."), error.field).error(f"{path}.{error.field}", error.sentence) from None


def _workdir(document: Part, text: str | None, context: SubmitContext) -> str:
    if text is None:
        return context.workdir
    try:
        return parse_workdir(text, context, "workdir")
    except UserError as error:
        raise UserError(f"{document.file}: line {document.at('workdir').line}: {error}") from None


def _with_copies(document: Part, spec: JobSpec, given: Mapping[str, Any]) -> JobSpec:
    for key, place in (("copy_forward", "copy_forward"), ("copy_backwards", "copy_back")):
        try:
            paths = copied_paths(given.get(key, ()), spec.workdir, key, must_exist=key == "copy_forward")
        except UserError as error:
            raise UserError(f"{document.file}: line {document.at(key).line}: {error}") from None
        spec = put(spec, f"staging.{place}", paths)
    return spec


def _with_stdin(document: Part, spec: JobSpec, file: str, context: SubmitContext) -> JobSpec:
    try:
        return put(spec, "staging.stdin", read_stdin(file, context, "stdin"))
    except UserError as error:
        raise UserError(f"{document.file}: line {document.at('stdin').line}: {error}") from None


def _with_outputs(document: Part, spec: JobSpec, given: Mapping[str, Any], context: SubmitContext) -> JobSpec:
    for key in ("output", "error"):
        if key in given:
            try:
                spec = put(spec, f"staging.{key}", parse_output(given[key], context, key))
            except UserError as error:
                raise UserError(f"{document.file}: line {document.at(key).line}: {error}") from None
    return spec


def _spread(document: Part, spec: JobSpec, given: Mapping[str, Any], context: SubmitContext) -> JobSpec:
    try:
        return spread(spec, given, context)
    except UserError as error:
        key = next((name for name in FIELDS if name in given), "command")
        part = document.at(error.field if error.field in FIELDS else key)
        raise UserError(f"{document.file}: line {part.line}: {error}") from None


def _refuse_contradictions(document: Part, given: Mapping[str, Any]) -> None:
    if not given.get("gang"):
        return
    if "limit" in given:
        raise document.at("limit").error("limit", "a gang starts all its tasks together; leave limit or gang out")
    for name, group in given.get("groups", {}).items():
        if group.get("parallelism", group.get("completions", 1)) < group.get("completions", 1):
            part = document.at("groups", name, "parallelism")
            raise part.error(f"groups.{name}.parallelism", "a gang starts all its tasks together; leave it or gang out")


def _notes(given: Mapping[str, Any], overrides: Overrides) -> tuple[str, ...]:
    image, on = given.get("image"), overrides["on"] if "on" in overrides else given.get("on", "")
    if not image or given.get("container") or overrides["container"] or "kubernetes" in on.split(","):
        return ()
    return (f"image {image!r} is not used: tasks run as plain processes on machines",)
