"""Overrides: what do flags and `#YARD` lines say about a job, and how do they change it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.declarations import keys_of, put, spelled
from jobyard.manifests.doubts import bare_times, with_doubts
from jobyard.manifests.files import read_stdin
from jobyard.manifests.halting import with_halt
from jobyard.manifests.job_fields import FLAGGED, RESOURCES
from jobyard.manifests.kinds import with_kind
from jobyard.manifests.notation import copied_paths, parse_env, parse_output, parse_workdir
from jobyard.manifests.resource_words import least_device_mib, resources_with
from jobyard.manifests.skipping import without_existing
from jobyard.manifests.spreading import FIELDS as SPREADING_FIELDS
from jobyard.manifests.spreading import spread
from jobyard.manifests.training import size_problem, with_gpus, with_workers, workers_problem
from jobyard.model.job import GroupSpec, JobSpec
from jobyard.model.output_pattern import check_apart, check_pattern

_ENDINGS = frozenset(("halt", "max_fails"))  # of which one replaces the other
INPUTS = "inputs"  # said by words after the command, and by no flag

_LONG_TIMES = {name: FLAGGED[name] for name in ("timeout", "estimate", "checkpoint_deadline")}


class Overrides(dict[str, Any]):
    """What is said, by the names of flags; what is not said is None, and leaves the job as it was written down."""

    def __init__(self, **said: Any) -> None:
        if unknown := said.keys() - FLAGGED.keys() - {INPUTS}:
            raise TypeError(f"no flag sets {', '.join(sorted(unknown))}")
        super().__init__((name, value) for name, value in said.items() if value not in (None, ()))

    def __missing__(self, name: str) -> None:
        if name != INPUTS:
            FLAGGED[name]  # a name that no flag has is a mistake of ours

    def with_words(self, **said: Any) -> Overrides:
        """The same, with these words instead."""
        return Overrides(**{**self, **said})


def merge(below: Overrides, above: Overrides) -> Overrides:
    """What `above` says wins; variables of both count, and a name in both has the value of `above`."""
    env = (*(below["env"] or ()), *(above["env"] or ()))
    replaced = {} if _ENDINGS.isdisjoint(above) else dict.fromkeys(_ENDINGS)
    return below.with_words(**{**replaced, **above, "env": env})


def apply(spec: JobSpec, overrides: Overrides, context: SubmitContext) -> JobSpec:
    """The job with what the flags say in place of what it said itself. Raises UserError; `spec` is not changed."""
    # 1. What each task is, and how many there are: what comes later may depend on it.
    env = parse_env(overrides["env"] or (), context.environ)
    groups = tuple(_with_flags(group, overrides, env) for group in spec.groups)
    changed = replace(spec, groups=groups, env={**spec.env, **env})
    changed = spread(changed, _spreading(overrides), context, spelled)
    for name, field in FLAGGED.items():
        if field.at and name in overrides:
            changed = put(changed, field.at, _meant(overrides, name))
    changed = _with_sizes(changed, overrides)
    # 2. What it is called and where it runs, and its files.
    if "name_prefix" in overrides:
        changed = replace(changed, name=f"{_meant(overrides, 'name_prefix')}-{changed.name}")
    if "stdin" in overrides:
        changed = put(changed, "staging.stdin", read_stdin(overrides["stdin"], context, "--stdin"))
    for name in ("output", "error"):
        if name in overrides:
            changed = put(changed, f"staging.{name}", parse_output(overrides[name], context, f"--{name}"))
    if changed.staging.error and changed.staging.error == changed.staging.output:
        changed = put(changed, "staging.error", "")  # one file for both is what --output alone means
    for name in ("output", "error"):
        if pattern := getattr(changed.staging, name):
            check_pattern(pattern, f"--{name}" if name in overrides else name, changed.size)
    check_apart(changed, "--error" if "error" in overrides else "error")
    if "workdir" in overrides:
        changed = replace(changed, workdir=parse_workdir(overrides["workdir"], context, "--workdir"))
    changed = _with_copies(changed, overrides)
    changed = with_kind(changed, "--kind" if "kind" in overrides else "kind")
    _refuse_nul(changed)
    # 3. Tasks that need not run, by their files in the working directory.
    if "skip_existing" in overrides:
        changed = without_existing(changed, _meant(overrides, "skip_existing"), "--skip-existing")
    for leave_out in context.leave_out:
        changed = leave_out(changed)
    # 4. When it ends early: shares are of the tasks that are left.
    if "halt" in overrides:
        if "max_fails" in overrides:
            raise UserError("--halt and --max-fails cannot be used together; leave one of them out")
        changed = with_halt(changed, overrides["halt"], "--halt")
    return with_doubts(changed, *bare_times(overrides, _LONG_TIMES))


def _spreading(overrides: Overrides) -> dict[str, Any]:
    """What they say of tasks and their values."""
    said = {name: _meant(overrides, name) for name in SPREADING_FIELDS if name in overrides and name in FLAGGED}
    return {**said, INPUTS: overrides[INPUTS]} if INPUTS in overrides else said


def _meant(overrides: Overrides, name: str) -> Any:
    return FLAGGED[name].from_flag(overrides[name], spelled(name))


def _with_sizes(spec: JobSpec, overrides: Overrides) -> JobSpec:
    """What the flags say of sizes. After arrays and limits, which may contradict it."""
    if "gpus" in overrides:
        spec = with_gpus(spec, _meant(overrides, "gpus")[:2])
    if "workers" in overrides:
        spec = with_workers(spec, _meant(overrides, "workers"))
        if problem := workers_problem(spec):
            raise UserError(f"{problem}", field="--workers")
    if contradiction := size_problem(spec):
        name, sentence = contradiction
        raise UserError(sentence, field=f"--{name}" if name in overrides else name)
    return spec


def _with_copies(spec: JobSpec, overrides: Overrides) -> JobSpec:
    """The paths that the flags name, inside the working directory that they left the job with."""
    if overrides["no_copy"]:
        for name in ("copy_forward", "copy_backwards"):
            if name in overrides:
                raise UserError(f"--no-copy and {spelled(name)} cannot be used together; leave one of them out")
        return replace(spec, staging=replace(spec.staging, no_copy=True, copy_forward=(), copy_back=()))
    for name, place in (("copy_forward", "copy_forward"), ("copy_backwards", "copy_back")):
        if name in overrides:
            paths = copied_paths(overrides[name], spec.workdir, spelled(name), must_exist=name == "copy_forward")
            spec = put(spec, f"staging.{place}", paths)
    return spec


def _with_flags(group: GroupSpec, overrides: Overrides, env: Mapping[str, str]) -> GroupSpec:
    said = _resource_words(overrides)
    resources = resources_with(group.resources, said, _shown)
    least = least_device_mib(group.least_device_mib, resources.gpus, said, _shown)
    own_env = {name: value for name, value in group.env.items() if name not in env}  # a flag wins over a group too
    return replace(group, resources=resources, least_device_mib=least, env=own_env)


def _shown(key: str) -> str:
    return spelled(_flag(key))


def _resource_words(overrides: Overrides) -> dict[str, Any]:
    return {key: _meant(overrides, _flag(key)) for key in keys_of(RESOURCES) if _flag(key) in overrides}


def _flag(key: str) -> str:
    option = RESOURCES[key].option
    assert option is not None
    return option.name or key


def _refuse_nul(spec: JobSpec) -> None:
    """No program can be started with a NUL character in its arguments or variables; entries come from a text file."""
    for group in spec.groups:
        if any("\0" in text for text in (*group.command.argv, group.command.shell)):
            raise UserError("it holds a NUL character, which no program can be given; remove it", field="command")
        for name, value in (*group.env.items(), *spec.env.items()):
            if "\0" in value:
                raise UserError(
                    f"the value of {name} holds a NUL character, which no program can be given", field="env"
                )
