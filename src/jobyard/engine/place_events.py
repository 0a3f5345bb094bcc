"""Node and cluster events: how does the state change when machines and clusters join, drain, leave or are lost?"""

from __future__ import annotations

from dataclasses import replace

from jobyard.engine.attempt_events import after_end
from jobyard.engine.job_record import JobRecord, SlotRecord
from jobyard.engine.lifecycle import LostItsNode
from jobyard.engine.slot_events import close_slot
from jobyard.engine.stopping import advance_task, stop_job
from jobyard.engine.yard_state import YardState
from jobyard.model.effects import Effect, Stop
from jobyard.model.events import (
    ClusterAdded,
    ClusterRemoved,
    NodeAdded,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeMeasured,
    NodeRemoved,
    NodeResumed,
    NodeWentAway,
    QuotaMeasured,
)
from jobyard.model.job import Reason
from jobyard.model.node import Foreign, Node, NodeState, cluster_of, place_of
from jobyard.model.task import AttemptId


def add_node(state: YardState, event: NodeAdded) -> list[Effect]:
    config = event.config
    state.places.configs[config.id] = config
    state.places.removed.discard(config.id)
    state.changes.plan = True
    if known := state.places.nodes.get(config.id):
        _set_node(state, replace(known, labels=config.labels, only_named=config.only_named))
    return []


def join(state: YardState, event: NodeJoined) -> list[Effect]:
    """What it has replaces what was known; what others hold there stays until the next measurement."""
    node = event.node
    if not state.places.removed.isdisjoint((node.id, place_of(node.id))):
        return []
    config, known = state.places.configs.get(node.id), state.places.nodes.get(node.id)
    if known is not None and node.foreign == Foreign():
        node = replace(node, foreign=known.foreign, load=known.load, device_use=known.device_use)
    labels = config.labels if config else node.labels
    # A cluster says itself which of its nodes take nothing new.
    is_kept_off = bool(cluster_of(node.id)) and node.state is not NodeState.UP
    now = node.state if is_kept_off else _state_when_here(state, node.id)
    node = replace(node, labels=labels, only_named=bool(config and config.only_named), state=now)
    if node != known:  # a cluster reports a thousand nodes again and again
        _set_node(state, node)
    return []


def drain(state: YardState, event: NodeDrained) -> list[Effect]:
    state.places.drained.add(event.node)
    _set_drained(state, event.node)
    return []


def resume(state: YardState, event: NodeResumed) -> list[Effect]:
    state.places.drained.discard(event.node)
    _set_drained(state, event.node)
    return []


def _set_drained(state: YardState, place: str) -> None:
    for known in _nodes_at(state, place):
        if known.state in (NodeState.UP, NodeState.DRAINING):
            _set_node(state, replace(known, state=_state_when_here(state, known.id)))


def go_away(state: YardState, event: NodeWentAway) -> list[Effect]:
    for known in _nodes_at(state, event.node):
        if known.state is not NodeState.DOWN:
            _set_node(state, replace(known, state=NodeState.AWAY))
    return []


def measure(state: YardState, event: NodeMeasured) -> list[Effect]:
    if known := state.places.nodes.get(event.node):
        state.changes.plan = state.changes.plan or known.foreign != event.foreign
        now = replace(known, foreign=event.foreign, load=event.load, device_use=event.device_use)
        state.places.nodes[event.node] = now
    return []


def measure_quota(state: YardState, event: QuotaMeasured) -> list[Effect]:
    state.changes.plan = state.changes.plan or state.places.quotas.get(event.cluster) != event.quota
    state.places.quotas[event.cluster] = event.quota
    return []


def lose_node(state: YardState, event: NodeLost) -> list[Effect]:
    if not cluster_of(event.node) and event.node not in state.places.clusters:
        return _lose_node(state, event.node, event.message or f"node {event.node} was lost", event.at)
    # Its cluster knows what became of the pods there, and its executor says so, pod by pod.
    for known in _nodes_at(state, event.node):
        _set_node(state, replace(known, state=NodeState.DOWN))
    return []


def remove_node(state: YardState, event: NodeRemoved) -> list[Effect]:
    """Its tasks run elsewhere; what runs there is asked to stop, if it still can be."""
    node_id = event.node
    stops: list[Effect] = []
    for job, record in state.slots.values():
        if record.slot.placement.node == node_id and record.tasks:
            running = (AttemptId(job.id, number, job.tasks.known[number].attempt) for number in sorted(record.tasks))
            stops.append(Stop(node_id, tuple(running), job.spec.policy.grace_seconds))
    effects = _lose_node(state, node_id, f"node {node_id} was removed", event.at)
    places = state.places
    places.configs.pop(node_id, None)
    places.nodes.pop(node_id, None)
    places.drained.discard(node_id)
    places.removed.add(node_id)
    state.changes.nodes = True
    return stops + effects


def add_cluster(state: YardState, event: ClusterAdded) -> list[Effect]:
    config = event.config
    known = state.places.clusters.get(config.id)
    if known is not None and known.storage != config.storage:
        for job in state.unfinished.values():
            if job.spec.cluster == config.id:
                job.training.checkpoint_places.clear()  # they are in the cluster's old storage
    state.places.clusters[config.id] = config
    state.places.removed.discard(config.id)
    state.trainings.keeps_checkpoints(config.id, bool(config.storage))
    state.changes.plan = True
    return []


def remove_cluster(state: YardState, event: ClusterRemoved) -> list[Effect]:
    """Its jobs can run nowhere else: they are stopped, and the report of their end is not awaited."""
    cluster, at = event.cluster, event.at
    effects: list[Effect] = []
    for job in [job for job in state.unfinished.values() if job.spec.cluster == cluster]:
        effects += stop_job(state, job, Reason.CANCELLED, f"cluster {cluster} was removed from the yard", at)
    lost = [item for item in state.slots.values() if cluster_of(item[1].slot.placement.node) == cluster]
    _lose_slots(state, lost, f"cluster {cluster} was removed", at)
    places = state.places
    places.nodes = {node_id: node for node_id, node in places.nodes.items() if cluster_of(node_id) != cluster}
    places.drained = {name for name in places.drained if place_of(name) != cluster}
    places.clusters.pop(cluster, None)
    places.quotas.pop(cluster, None)
    places.removed.add(cluster)
    state.changes.nodes = True
    state.trainings.keeps_checkpoints(cluster, False)
    state.changes.plan = True
    return effects


def _nodes_at(state: YardState, place: str) -> list[Node]:
    """One node, or all nodes of a cluster."""
    if place in state.places.nodes:
        return [state.places.nodes[place]]
    return [node for node in state.places.nodes.values() if cluster_of(node.id) == place]


def _set_node(state: YardState, node: Node) -> None:
    state.places.nodes[node.id] = node
    state.changes.nodes = True
    state.changes.plan = True


def _state_when_here(state: YardState, node_id: str) -> NodeState:
    is_drained = not state.places.drained.isdisjoint((node_id, place_of(node_id)))
    return NodeState.DRAINING if is_drained else NodeState.UP


def _lose_node(state: YardState, node_id: str, message: str, at: float) -> list[Effect]:
    if node := state.places.nodes.get(node_id):
        state.places.nodes[node_id] = replace(node, state=NodeState.DOWN)
    at_node = (item for item in state.slots.values() if item[1].slot.placement.node == node_id)
    lost = [(job, record) for job, record in at_node if job.id not in state.quarantined]
    effects = _lose_slots(state, lost, message, at)
    state.changes.plan = True
    return [effect for effect in effects if effect.node != node_id]


def _lose_slots(state: YardState, lost: list[tuple[JobRecord, SlotRecord]], message: str, at: float) -> list[Effect]:
    effects: list[Effect] = []
    for job, record in lost:
        for number in list(record.tasks):
            step = advance_task(state, job, job.tasks.known[number], LostItsNode(message))
            effects += after_end(state, job, step.task, at)
        if record.slot.id in state.slots:
            close_slot(state, record.slot.id)
    return effects
