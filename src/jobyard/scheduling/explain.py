"""Why does a job wait, in words?"""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.model.job import Reason
from jobyard.model.node import Node, NodeState
from jobyard.model.resources import Resources
from jobyard.model.units import show_cpus, show_mib
from jobyard.scheduling.placement import Room, matches
from jobyard.scheduling.snapshot import Wait


def why_never(nodes: Sequence[Node], ask: Resources, on: str) -> str | None:
    """A sentence if no node, even empty, could ever run it; it names the largest. None where one could."""
    suitable = [node for node in nodes if matches(node, on)]
    if not suitable:
        known = ", ".join(sorted({node.id for node in nodes} | {node.executor for node in nodes})) or "none"
        return f"there is no node {on!r}; known: {known}" if on else "the yard has no nodes"
    if any(Room(node).instances(ask) for node in suitable):
        return None
    largest = max(suitable, key=lambda node: _closeness(node, ask))
    return f"a task needs {ask}; the largest node, {largest.id}, has {describe(largest)}"


def _closeness(node: Node, ask: Resources) -> tuple[int, int, int, int]:
    return (min(len(node.devices), ask.gpus), node.memory_mib, node.cpu_millis, sum(d.memory_mib for d in node.devices))


def describe(node: Node) -> str:
    text = f"{show_cpus(node.cpu_millis)} cpus, {show_mib(node.memory_mib)} memory"
    if not node.devices:
        return text + ", no GPU"
    kinds = sorted({f"{d.name} with {show_mib(d.memory_mib)}{' (fake)' if d.fake else ''}" for d in node.devices})
    return f"{text}, {len(node.devices)} GPU{'s' if len(node.devices) > 1 else ''}: {', '.join(kinds)}"


def why_not_now(rooms: Sequence[Room], ask: Resources, on: str, ahead: str) -> Wait:
    """It does not fit now. `ahead` is the earlier job whose room it may not take, if that is why."""
    if not rooms:
        return Wait(Reason.NODE_DOWN, "the yard has no nodes yet")
    if never := why_never([room.node for room in rooms], ask, on):
        return Wait(Reason.NEVER_FITS, never)
    suitable = [room for room in rooms if matches(room.node, on) and room.instances(ask)]
    able = [room for room in suitable if room.node.state is NodeState.UP]
    if not able:
        states = ", ".join(f"{room.node.id} is {room.node.state.lower()}" for room in suitable)
        return Wait(Reason.NODE_DOWN, f"no node can take it now: {states}")
    if any(room.place(ask) for room in able):
        return Wait(Reason.PRIORITY, f"job {ahead} is ahead of it and waits for the same resources")
    nearest = min(able, key=lambda room: len(_lacking(room, ask)))
    sentence = f"needs {ask}; {nearest.node.id} has {' and '.join(_lacking(nearest, ask))}"
    if nearest.node.foreign.holders:
        sentence += f" (others hold part of it: {', '.join(nearest.node.foreign.holders[:3])})"
    if len(able) > 1:
        sentence += f", and the other {len(able) - 1} suitable node{'s' if len(able) > 2 else ''} no more"
    return Wait(Reason.RESOURCES, sentence)


def why_not_together(placed: int, wanted: int) -> Wait:
    return Wait(Reason.RESOURCES, f"its {wanted} tasks start together, and there is room for {placed} of them now")


def _lacking(room: Room, ask: Resources) -> list[str]:
    lacking = []
    if max(0, room.cpu_millis) < ask.cpu_millis:
        lacking.append(f"{show_cpus(max(0, room.cpu_millis))} of {show_cpus(room.node.cpu_millis)} cpus free")
    if max(0, room.memory_mib) < ask.memory_mib:
        lacking.append(f"{show_mib(max(0, room.memory_mib))} of {show_mib(room.node.memory_mib)} memory free")
    usable = sum(device.can_give(ask) for device in room.devices) if ask.gpus else 0
    if usable < ask.gpus:
        enough = f"GPUs with {show_mib(ask.gpu_memory_mib)} free" if ask.shares_gpus else "free GPUs"
        lacking.append(f"{usable} {enough} of {len(room.devices)}")
    return lacking or ["no room"]
