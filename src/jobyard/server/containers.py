"""Containers: can a job run in containers, and on which machines?"""

from __future__ import annotations

from dataclasses import replace

from jobyard.engine.yard_state import YardState
from jobyard.errors import UserError
from jobyard.model.job import JobSpec
from jobyard.model.node import Node, NodeState, cluster_of
from jobyard.scheduling.explain import may_match, why_no_container
from jobyard.scheduling.where import matches, where_of


def check_container(spec: JobSpec) -> None:
    """Raises UserError for what no runtime could run."""
    if not spec.container.image:
        raise UserError("it needs an image; name one with --image IMAGE", field="--container")
    if spec.container.image.startswith("-"):
        raise UserError(f"image {spec.container.image!r}: a name begins with a letter or a digit")
    if spec.workdir == "/" and not spec.staging.snapshot:
        raise UserError("workdir /: a container has a root of its own; choose another directory with --workdir")


def machines_for(state: YardState, spec: JobSpec) -> list[Node]:
    """The known machines that `on` names."""
    up = (node for node in state.places.nodes.values() if not cluster_of(node.id) and node.state is NodeState.UP)
    return [node for node in up if matches(node, spec.on)]


def check_runtime(state: YardState, spec: JobSpec) -> None:
    """Raises UserError where no machine that the job may have can run containers."""
    if not spec.container.on_machines or any(may_match(config, spec.on) for config in state.places.unreached):
        return
    if why := why_no_container(state.places.nodes.values(), where_of(spec, spec.groups[0])):
        raise UserError(f"{why}; install or start one there, or leave --container out", field="--container")


def without_container(spec: JobSpec) -> JobSpec:
    """The spec without what only machines need to know of its container."""
    return replace(spec, container=replace(spec.container, on_machines=False))
