"""Room on one machine: what does it have, what do others hold of it, and who waits until that is measured?"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from jobyard.executors.measurement import Measurements
from jobyard.executors.reports import used
from jobyard.model.events import AttemptsWithdrawn, Event, NodeJoined
from jobyard.model.node import Device, Node


class MachineRoom:
    """Fed by the agent's `welcome`, `measured` and `refused`."""

    def __init__(self, node: str, executor: str, *, owner_only: bool = False) -> None:
        self.node = node
        self.owner_only = owner_only
        self.described: Node | None = None  # after the first welcome
        self._executor = executor
        self._measurements = Measurements(node)
        self._joining: list[Event] = []  # what is said with the first measurement after a connection was made
        self._given_back: list[Event] | None = None  # after a slot was refused, until we know who holds the room

    def welcome(self, welcome: dict[str, Any], at: float) -> None:
        """The node joins with its first measurement: before that it is unknown how much others use."""
        before, described = self.described, _node(self.node, self._executor, welcome, self.owner_only)
        if before is not None:
            described = replace(described, runtime=before.runtime, runtime_problem=before.runtime_problem)
        self.described = _with_runtime(described, welcome)
        self._joining = [NodeJoined(self.described, at)]
        self._given_back = None  # reconcile reports them again

    def measured(self, message: dict[str, Any], ours: Collection[int], at: float) -> list[Event]:
        """`ours` are the devices on which this yard has a slot now."""
        measured = self._measurements.read(message, ours, at)
        by_attempts = [found] if (found := used(message, at)) else []
        self._notice_runtime(message, at)
        events = [*self._joining, measured, *by_attempts, *(self._given_back or ())]
        self._joining, self._given_back = [], None
        return events

    def _notice_runtime(self, message: dict[str, Any], at: float) -> None:
        """A container engine was started or stopped, so the node has changed."""
        assert self.described is not None
        found = _with_runtime(self.described, message)
        if found != self.described:
            self.described = found
            self._joining = [NodeJoined(found, at)]

    def refused(self) -> bool:
        """Others hold a slot's room. True: for the first time since the last measurement."""
        is_first = self._given_back is None
        if is_first:
            self._given_back = []
        return is_first

    def without_given_back(self, events: list[Event]) -> list[Event]:
        """While a slot was refused, what is given back waits for the next measurement."""
        if self._given_back is None:
            return events
        self._given_back += [event for event in events if isinstance(event, AttemptsWithdrawn)]
        return [event for event in events if not isinstance(event, AttemptsWithdrawn)]


def _with_runtime(node: Node, seen: dict[str, Any]) -> Node:
    """`seen` is a message of the agent. Where it has not asked its runtime yet, the known one stays."""
    runtime = seen.get("runtime")
    return replace(node, runtime=runtime["kind"], runtime_problem=runtime["problem"]) if runtime else node


def _node(name: str, executor: str, welcome: dict[str, Any], owner_only: bool) -> Node:
    devices = tuple(
        Device(seen["index"], seen["name"], seen["memory_mib"], seen.get("uuid", ""), bool(seen.get("fake")))
        for seen in welcome["devices"]
    )
    cpu_millis, memory_mib, boot_id = welcome["cpu_millis"], welcome["memory_mib"], welcome["boot_id"]
    return Node(name, executor, cpu_millis, memory_mib, devices, boot_id=boot_id, owner_only=owner_only)
