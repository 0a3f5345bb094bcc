"""Clusters of a yard: which Kubernetes clusters are there, and which of them does a job go to?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from jobyard.engine.yard_state import YardState
from jobyard.errors import NotFound, UserError
from jobyard.executors.protocol import Executor, InNamespace
from jobyard.model.events import CancelRequested, ClusterAdded, ClusterRemoved, Event
from jobyard.model.executor_kinds import kind_on_cluster
from jobyard.model.job import JobSpec
from jobyard.model.node import ClusterConfig, Node, NodeState, place_of
from jobyard.model.units import show_jobs_are
from jobyard.server.containers import check_container, without_container
from jobyard.server.rounds import Command
from jobyard.server.support_checks import kinds_on_machines, with_support
from jobyard.wire.views import ClusterView

KUBERNETES = "kubernetes"
CLUSTER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def with_cluster(state: YardState, spec: JobSpec) -> JobSpec:
    """The spec with the cluster that `on` means, if it means one. Raises UserError where it cannot go there."""
    cluster = cluster_named(state, spec.on)
    if not cluster:
        return _for_machines(state, spec)
    if cluster not in state.places.clusters:
        raise UserError("the yard knows no Kubernetes cluster; run: yard clusters add")
    return for_cluster(spec, cluster, has_queue=bool(state.places.clusters[cluster].queue))


def cluster_named(state: YardState, on: str) -> str:
    """The cluster that `--on` names; `kubernetes` where it means one and there is none; empty: machines."""
    names = on.split(",") if on else []
    found = {name: cluster for name in names if (cluster := _named(state, name))}
    if not found:
        return ""
    first = next(iter(found))
    if first != found[first] and "/" in first:
        raise UserError(f"Kubernetes chooses the node; name the cluster alone: --on {found[first]}", field="--on")
    if len(names) > 1:
        raise UserError(
            f"{first} is a cluster, and a job goes to one cluster or to machines; name only one", field="--on"
        )
    return found[first]


def _named(state: YardState, name: str) -> str:
    if name in state.places.clusters:
        return name
    if place_of(name) in state.places.clusters:
        return place_of(name)
    if name == KUBERNETES and not _is_a_machines(state, name):
        return next(iter(state.places.clusters), KUBERNETES)
    return ""


def _is_a_machines(state: YardState, name: str) -> bool:
    """Is this name that of a machine, or a label of one?"""
    nodes = [node for node in state.places.nodes.values() if node.executor != KUBERNETES]
    names = {*(node.id for node in nodes), *state.places.configs}
    labels = {label for node in nodes for label in node.labels}
    labels |= {label for config in state.places.configs.values() for label in config.labels}
    return name in names | labels


def for_cluster(spec: JobSpec, cluster: str, *, has_queue: bool = False) -> JobSpec:
    """As a cluster runs it. No code is sent, because the code is in the image."""
    for secret in spec.kubernetes.secrets:
        if not secret.is_made_for_a_job:
            raise UserError(f"secret {secret.name!r} is not this job's; mount a file with --mount-secret FILE=PATH")
    told = spec.submitter
    notes = tuple(note for note in told.notes if not (note.startswith(_image_note(spec)) and " used: " in note))
    notes = notes if told.cluster_notes is None else told.cluster_notes
    spec = replace(spec, cluster=cluster, submitter=replace(told, notes=notes, cluster_notes=None))
    return without_container(with_support(spec, {kind_on_cluster(spec)}, has_queue=has_queue))


def _for_machines(state: YardState, spec: JobSpec) -> JobSpec:
    if spec.container.on_machines:
        check_container(spec)
    spec = replace(spec, cluster="", submitter=replace(spec.submitter, cluster_notes=None))
    return with_support(spec, kinds_on_machines(state, spec))


def _image_note(spec: JobSpec) -> str:
    return f"image {spec.container.image!r}"


def changed_config(state: YardState, said: ClusterConfig) -> ClusterConfig:
    """What is not given stays as it is. Raises UserError where jobs would be left behind: their pods would
    run on there, and they would begin again here."""
    known = state.places.clusters.get(said.id)
    if known is None:
        return said
    config = replace(said, storage=said.storage or known.storage, queue=said.queue or known.queue)
    if not said.kubeconfig:
        config = replace(config, kubeconfig=known.kubeconfig)
        if said.context in ("", known.context):
            config = replace(config, context=known.context, namespace=said.namespace or known.namespace)
    jobs = unfinished_jobs(state, said.id)
    moves = [name for name in ("kubeconfig", "context", "namespace") if getattr(config, name) != getattr(known, name)]
    if jobs and moves:
        raise UserError(
            f"cluster {said.id}: {show_jobs_are(len(jobs))} not finished in {_place(known, moves)},"
            f" and this is {_place(config, moves)};"
            " wait for the end, or give the other place a name of its own: yard clusters add NAME"
        )
    return config


def _place(config: ClusterConfig, names: Iterable[str]) -> str:
    return ", ".join(f"{name} {getattr(config, name) or 'of its own'}" for name in names)


def add_cluster(config: ClusterConfig, this_machine: str, by: str = "") -> Command[str]:
    def command(state: YardState, now: float) -> tuple[list[Event], str]:
        check_name(state, config.id, this_machine)
        return [ClusterAdded(config, now, by)], config.id

    return command


def check_name(state: YardState, name: str, this_machine: str) -> None:
    if not CLUSTER_ID.fullmatch(name):
        raise UserError(f"cluster name {name!r}: use letters, digits, `_`, `.` and `-`")
    if name in (this_machine, "local", "ssh") or _is_a_machines(state, name):
        raise UserError(f"cluster name {name!r}: a machine or a label has that name already; choose another")


def known_cluster(state: YardState, cluster: str) -> ClusterConfig:
    if cluster not in state.places.clusters:
        known = ", ".join(sorted(state.places.clusters)) or "none; `yard clusters add` adds one"
        raise NotFound(f"no cluster {cluster!r}; known: {known}")
    return state.places.clusters[cluster]


def all_clusters(state: YardState) -> list[ClusterConfig]:
    return list(state.places.clusters.values())


def find_cluster(state: YardState, cluster: str) -> ClusterConfig | None:
    return state.places.clusters.get(cluster)


def unfinished_jobs(state: YardState, cluster: str) -> list[str]:
    return [job.id for job in state.unfinished.values() if job.spec.cluster == cluster]


def cancel_jobs(cluster: str, by: str = "") -> Command[list[str]]:
    """Returns those that have not ended."""

    def command(state: YardState, now: float) -> tuple[list[Event], list[str]]:
        known_cluster(state, cluster)
        jobs = unfinished_jobs(state, cluster)
        message = f"cancelled because cluster {cluster} was removed{f' by {by}' if by else ''}"
        return [CancelRequested(job, now, (), False, message, by) for job in jobs], jobs

    return command


def remove_cluster(cluster: str, by: str = "") -> Command[str]:
    def command(state: YardState, now: float) -> tuple[list[Event], str]:
        known_cluster(state, cluster)
        return [ClusterRemoved(cluster, now, by)], cluster

    return command


def namespace_of(config: ClusterConfig, executor: Executor | None) -> str:
    """The namespace of its jobs, also where only the executor knows it (from its identity)."""
    return config.namespace or (executor.namespace if isinstance(executor, InNamespace) else "")


def cluster_view(state: YardState, config: ClusterConfig, executor: Executor | None, problem: str = "") -> ClusterView:
    status = executor.status() if executor else None
    nodes = [node for node in nodes_of(state, config.id) if not node.is_queue]
    up = [node for node in nodes if node.state is NodeState.UP]
    placements = [record.slot.placement for _, record in state.slots.values()]
    taken = {(placement.node, piece.index) for placement in placements for piece in placement.devices}
    taken |= {(node.id, index) for node in up for index in node.foreign.whole_devices}
    gpus = {(node.id, device.index) for node in up for device in node.devices}
    return ClusterView(
        id=config.id,
        server=status.address if status else "",
        kubeconfig=config.kubeconfig,
        context=config.context,
        namespace=namespace_of(config, executor),
        storage=config.storage,
        queue=config.queue,
        allow_host_path=config.allow_host_path,
        is_connected=bool(status and status.is_connected),
        problem=problem or (status.problem if status else ""),
        nodes=len(nodes),
        nodes_up=len(up),
        gpus=len(gpus),
        gpus_free=len(gpus - taken),
        jobs=len(unfinished_jobs(state, config.id)),
    )


def nodes_of(state: YardState, cluster: str) -> list[Node]:
    return [node for name, node in state.places.nodes.items() if place_of(name) == cluster]
