"""Node queries: what do routes read of machines and of nodes of clusters? Frozen answers, as in `queries`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jobyard.model.node import Node, NodeState, place_of
from jobyard.server.clusters import KUBERNETES
from jobyard.server.loop import YardLoop
from jobyard.server.views import Held, node_view, slots_by_place
from jobyard.wire.views import NodeView


def listed_nodes(loop: YardLoop) -> tuple[list[str], Callable[[str], NodeView]]:
    """Their names, and what shows one of them: what is held is counted once for the whole list."""
    state = loop.state
    nodes = state.places.nodes
    names = [name for name in {**nodes, **state.places.configs} if name not in nodes or not nodes[name].is_queue]
    held = slots_by_place(state)
    return names, lambda name: shown_node(loop, name, held)


def shown_node(loop: YardLoop, node: str, held: Held | None = None) -> NodeView:
    """A machine, a node of a cluster, or a cluster as a whole."""
    places, executor = loop.state.places, loop.executor_of(node)
    config = places.configs.get(node)
    labels = config.labels if config else ()
    known = places.nodes.get(node) or Node(node, "ssh", 0, 0, labels=labels, state=NodeState.DOWN)
    if node in places.clusters:  # as a whole it can be drained and resumed
        state = NodeState.DRAINING if node in places.drained else NodeState.UP
        known = replace(known, executor=KUBERNETES, state=state)
    # The problem of a cluster is shown once, by `yard clusters`, and not with each of its nodes.
    problem = executor.status().problem if executor and place_of(node) == node else ""
    host, user, port = config.login if config else ("", "", None)
    return replace(node_view(loop.state, known, held), host=host, user=user, port=port, problem=problem)
