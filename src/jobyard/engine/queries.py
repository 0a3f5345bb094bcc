"""Queries before a submit: which resources would a job need, and could it ever run?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from jobyard.engine.yard_state import YardState
from jobyard.model.job import JobSpec
from jobyard.model.node import cluster_of
from jobyard.model.resources import Resources
from jobyard.scheduling import explain
from jobyard.scheduling.snapshot import Member
from jobyard.scheduling.where import needs_of


def member_of(
    spec: JobSpec, group: int, resources: Resources | None = None, wanted: int = 1, replica: int | None = None
) -> Member:
    """Room for tasks of one group. On a cluster GPUs are whole: Kubernetes counts them, and knows no shares."""
    resources = resources or spec.groups[group].resources
    if not spec.cluster:
        if (least := spec.groups[group].least_device_mib) > resources.least_device_mib and resources.gpus:
            resources = replace(resources, least_device_mib=least)
        with_token = bool(spec.submitter.submitted_with)
        return Member(group, resources, wanted, replica, in_container=spec.container.on_machines, with_token=with_token)
    if resources.shares_gpus or resources.least_device_mib:
        resources = replace(resources, gpu_memory_mib=0, gpu_percent=0, least_device_mib=0)
    labels, tolerations = needs_of(spec.groups[group])
    return Member(group, resources, wanted, replica, labels=labels, tolerations=tolerations)


def members_together(spec: JobSpec) -> tuple[Member, ...]:
    """All that must be there at once for a job that starts together."""
    at_once = [
        group.size if spec.gang else group.count * min(group.completions, group.parallelism or group.completions)
        for group in spec.groups
    ]
    return tuple(member_of(spec, index, wanted=wanted) for index, wanted in enumerate(at_once) if wanted)


def why_never(
    state: YardState, job_groups: Iterable[Member], on: str, overcommit: bool = False, cluster: str = ""
) -> str | None:
    """A sentence if some member could run on no node, even an empty one, or `on` names something unknown."""
    nodes = list(state.places.nodes.values())
    if cluster:
        return _why_never_on_cluster(state, job_groups, cluster)
    if unknown := explain.why_unknown(nodes, state.places.unreached, on, state.places.clusters):
        return unknown
    if any(explain.may_match(config, on) for config in state.places.unreached):
        return None  # its resources are not known yet
    whys = (explain.why_never(nodes, m.resources, m.where(on, cluster), overcommit) for m in job_groups)
    return next(filter(None, whys), None)


def _why_never_on_cluster(state: YardState, job_groups: Iterable[Member], cluster: str) -> str | None:
    nodes = [node for node in state.places.nodes.values() if cluster_of(node.id) == cluster]
    if not nodes and cluster not in state.places.clusters:
        return f"there is no cluster {cluster!r}; known: {', '.join(sorted(state.places.clusters)) or 'none'}"
    if not nodes:
        return None  # its resources are not known yet
    return next(filter(None, (explain.why_never(nodes, m.resources, m.where("", cluster)) for m in job_groups)), None)
