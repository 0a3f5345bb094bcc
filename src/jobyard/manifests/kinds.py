"""Kubernetes kinds: as which kind of object does a job of ours run, and how are its tasks counted then?"""

from __future__ import annotations

from dataclasses import replace

from jobyard.errors import UserError
from jobyard.model.job import GroupSpec, JobSpec
from jobyard.model.resources import Resources
from jobyard.model.training import Training

KINDS = {"pytorchjob": "PyTorchJob", "rayjob": "RayJob"}
HEAD_MEMORY_MIB = 2048  # what an idle Ray head with its dashboard takes, and room for the command beside it


def parse_kind(text: str, field: str) -> str:
    kind = KINDS.get(text.lower())
    if kind is None:
        known = " or ".join(KINDS)
        raise UserError(f"unknown kind {text!r}; write {known}, or leave it out for a Job or JobSet", field=field)
    return kind


def with_kind(spec: JobSpec, field: str = "kind") -> JobSpec:
    """The job, whose `kind` is set, in the shape that this kind has. Repeatable."""
    kind = spec.kubernetes.kind
    if spec.kubernetes.manifest or not kind or [group.name for group in spec.groups] == ["head", "worker"]:
        return spec
    if not spec.on:
        on = "--on kubernetes" if field.startswith("--") else "on: kubernetes"
        raise UserError(f"a {kind} runs on a Kubernetes cluster only; add {on}", field=field)
    group = spec.groups[0]
    is_array = group.array is not None or group.command.is_each
    if len(spec.groups) > 1 or is_array or (group.count > 1 and group.completions > 1):
        raise UserError(
            f"a {kind} has one command and workers of one kind; this job is an array or has groups:"
            f" leave {field} out, or say how many with workers",
            field=field,
        )
    if kind == "RayJob":
        return _ray(spec, group, field)
    return replace(spec, gang=True)


def _ray(spec: JobSpec, group: GroupSpec, field: str) -> JobSpec:
    """The command runs once, on the head, and uses the workers through Ray; Ray itself scales within a range."""
    workers = spec.elastic.workers if spec.elastic is not None else None
    if spec.elastic is not None and spec.elastic.gpus:
        raise UserError("the GPUs of a RayJob's workers cannot be a range; give a plain number", field=field)
    memory = max(HEAD_MEMORY_MIB, group.resources.memory_mib) if group.resources.memory_mib else 0
    head = GroupSpec(group.command, "head", resources=Resources(1000, memory), env=group.env)
    worker = replace(group, name="worker", count=group.size, completions=1, parallelism=None)
    if workers is not None:
        worker = replace(worker, count=workers[0], count_most=workers[1])
        if spec.training == Training():  # it counted as training only because of its range
            spec = replace(spec, training=None)
    return replace(spec, groups=(head, worker), gang=True, elastic=None)
