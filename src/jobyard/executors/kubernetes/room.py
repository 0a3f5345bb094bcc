"""Room in a cluster: what does it have, what do others hold, and what may we use? Reported when it changes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from jobyard.executors.kubernetes.capacity import (
    KWOK,
    Amounts,
    asked_by,
    foreign_of,
    node_of,
    queue_node,
    quota_of,
)
from jobyard.kubernetes.states import is_over
from jobyard.model.events import Event, NodeJoined, NodeLost, NodeMeasured, QuotaMeasured
from jobyard.model.node import Foreign, Node, Quota
from jobyard.model.resources import Placement

Object = dict[str, Any]


class ClusterRoom:
    """Fed by watches. Pods that are `in_our_books`, as slots of the yard, are not counted again."""

    def __init__(self, cluster: str, has_queue: bool, in_our_books: Callable[[Object], bool]) -> None:
        self._cluster = cluster
        self._in_our_books = in_our_books
        self.changed = asyncio.Event()
        self._nodes: dict[str, Object] = {}
        self._quotas: dict[str, Object] = {}
        self._held: dict[tuple[str, str], tuple[str, bool, Amounts]] = {}  # by pod: its node, is it ours, what it asks
        self._by_node: defaultdict[str, Amounts] = defaultdict(Amounts)  # of others
        self._ours = Amounts()
        self._dirty: dict[str, None] = {}
        self._told: dict[str, Node] = {}
        self._believed: set[str] = set()  # by the yard, before we told it anything
        self._told_foreign: dict[str, Foreign] = {}
        self._told_quota: Quota | None = None
        self._queue = queue_node(cluster) if has_queue else None
        self._is_queue_told = False

    def tell_all(self, believed: Iterable[str]) -> None:
        """Everything is told again to a yard that has slept, or that we could not hear for: also that nodes have gone
        which it believes to be there."""
        self._told.clear()
        self._believed = set(believed)
        self._told_foreign.clear()
        self._told_quota = None
        self._is_queue_told = False
        self._dirty = dict.fromkeys([*self._nodes, *sorted(self._believed)])
        self.changed.set()

    def is_simulated(self, node: str) -> bool:
        """Its pods are said to run, and write nothing."""
        return KWOK in (self._nodes.get(node, {}).get("metadata", {}).get("annotations") or {})

    # -- watches ------------------------------------------------------------------------------------------------------

    def node_changed(self, seen: Object, gone: bool) -> None:
        name = seen["metadata"]["name"]
        if gone:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = seen
        self._touch(name)

    def quota_changed(self, seen: Object, gone: bool) -> None:
        if gone:
            self._quotas.pop(seen["metadata"]["name"], None)
        else:
            self._quotas[seen["metadata"]["name"]] = seen
        self.changed.set()

    def pod_changed(self, pod: Object, gone: bool) -> None:
        key = pod["metadata"]["namespace"], pod["metadata"]["name"]
        known = self._held.pop(key, None)
        if known is not None:
            self._count(*known, -1)
        is_ours = self._in_our_books(pod)
        if not gone and not is_over(pod) and (is_ours or pod["spec"].get("nodeName")):
            # A quota counts pods that have no node yet: ours must be known as ours from the beginning.
            self._held[key] = found = pod["spec"].get("nodeName", ""), is_ours, asked_by(pod)
            if found == known:
                self._count(*found, 1, quietly=True)
            else:
                self._count(*found, 1)

    def _count(self, node: str, is_ours: bool, asked: Amounts, sign: int, *, quietly: bool = False) -> None:
        signed = asked.times(sign)
        if is_ours:
            self._ours = self._ours.plus(signed)
            if self._quotas:
                self.changed.set()
        else:
            self._by_node[node] = self._by_node[node].plus(signed)
            if not quietly:
                self._touch(node)

    def _touch(self, node: str) -> None:
        self._dirty[node] = None
        self.changed.set()

    # -- telling ------------------------------------------------------------------------------------------------------

    def changes(self, placements: Iterable[Placement], at: float) -> list[Event]:
        """What differs from what was told; `placements` are the yard's own."""
        self.changed.clear()
        events: list[Event] = []
        if self._queue is not None and not self._is_queue_told:
            self._is_queue_told = True
            events.append(NodeJoined(self._queue, at))
        dirty, self._dirty = self._dirty, {}
        ours: defaultdict[str, set[int]] = defaultdict(set)
        if dirty:
            for placement in placements:
                ours[placement.node].update(piece.index for piece in placement.devices)
        for name in dirty:
            events += self._changes_of(name, ours, at)
        quota = quota_of(self._quotas.values(), self._ours)
        if quota != self._told_quota:
            self._told_quota = quota
            events.append(QuotaMeasured(self._cluster, quota, at))
        return events

    def _changes_of(self, name: str, ours: dict[str, set[int]], at: float) -> list[Event]:
        node_id = f"{self._cluster}/{name}"
        if name not in self._nodes:
            is_known = self._told.pop(name, None) is not None or name in self._believed
            self._told_foreign.pop(name, None)
            self._believed.discard(name)
            return [NodeLost(node_id, at, f"node {name} has left the cluster")] if is_known else []
        node = node_of(self._cluster, self._nodes[name])
        events: list[Event] = []
        if self._told.get(name) != node:
            self._told[name] = node
            events.append(NodeJoined(node, at))
        foreign = foreign_of(self._by_node[name], ours[node_id], node.devices)
        if self._told_foreign.get(name) != foreign:
            self._told_foreign[name] = foreign
            events.append(NodeMeasured(node_id, foreign, at))
        return events
