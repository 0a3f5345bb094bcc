"""Builders for tests: a test names only what matters to it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from jobyard.model.container import ContainerSpec
from jobyard.model.events import JobSubmitted, NodeJoined
from jobyard.model.inputs import Column, Inputs, Source
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.kubernetes import KubernetesSpec
from jobyard.model.lines import Lines
from jobyard.model.node import Device, Node
from jobyard.model.policy import RunPolicy
from jobyard.model.resources import Resources
from jobyard.model.staging import StagingSpec
from jobyard.model.submitter import Submitter

PARTS: dict[str, Any] = {
    "policy": RunPolicy,
    "submitter": Submitter,
    "staging": StagingSpec,
    "kubernetes": KubernetesSpec,
    "container": ContainerSpec,
}
PART_OF = {field.name: part for part, kind in PARTS.items() for field in fields(kind)}


def a_node(
    name: str = "here",
    cpus: float = 4,
    memory_mib: int = 16384,
    gpus: int = 0,
    gpu_mib: int = 80000,
    owner_only: bool = False,
) -> Node:
    devices = tuple(Device(i, "FakeGPU", gpu_mib, f"GPU-{name}-{i}", fake=True) for i in range(gpus))
    return Node(name, "local", int(cpus * 1000), memory_mib, devices, owner_only=owner_only)


def a_cluster_node(name: str = "n1", cpus: float = 4, gpus: int = 0, cluster: str = "prod", **other: Any) -> Node:
    return replace(a_node(f"{cluster}/{name}", cpus=cpus, gpus=gpus), executor="kubernetes", **other)


def a_group(
    name: str = "",
    count: int = 1,
    completions: int = 1,
    parallelism: int | None = None,
    cpus: float = 1,
    mem: int = 0,
    gpus: int = 0,
    gpu_mem: int = 0,
) -> GroupSpec:
    resources = Resources(int(cpus * 1000), mem, gpus, gpu_mem)
    return GroupSpec(Command(shell="true"), name, count, completions, parallelism, resources)


def one_column(values: Lines) -> Inputs:
    """A row for each value, for which `{}` stands."""
    return Inputs((Source((Column(values),)),))


def a_job(tasks: int = 1, groups: tuple[GroupSpec, ...] = (), **spec: Any) -> JobSpec:
    """`cpus`, `mem`, `gpus`, `gpu_mem` and `parallelism` go to the one group; everything else to the job."""
    own = {key: spec.pop(key) for key in ("cpus", "mem", "gpus", "gpu_mem", "parallelism") if key in spec}
    return with_words(JobSpec("job", groups or (a_group(completions=tasks, **own),)), **spec)


def with_words(spec: JobSpec, **words: Any) -> JobSpec:
    """The job with other values; a test need not say which part of the spec has the field."""
    inside: dict[str, dict[str, Any]] = {}
    for word in [word for word in words if word in PART_OF]:
        inside.setdefault(PART_OF[word], {})[word] = words.pop(word)
    parts = {part: replace(getattr(spec, part), **values) for part, values in inside.items()}
    return replace(spec, **parts, **words)


def submitted(job_id: str, number: int, spec: JobSpec | None = None, at: float = 0.0) -> JobSubmitted:
    return JobSubmitted(job_id, number, spec or a_job(), at)


def joined(node: Node | None = None, at: float = 0.0) -> NodeJoined:
    return NodeJoined(node or a_node(), at)
