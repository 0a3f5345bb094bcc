"""Why does a job wait, in words?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jobyard.model.job import Reason
from jobyard.model.node import Node, NodeConfig, NodeState
from jobyard.model.resources import Resources
from jobyard.model.units import show_cpus, show_mib
from jobyard.scheduling.placement import Room, matches
from jobyard.scheduling.snapshot import Wait

SSH = "ssh"  # the executor of all machines that users add


def why_never(nodes: Sequence[Node], ask: Resources, on: str, overcommit: bool = False) -> str | None:
    """A sentence if no node, even empty, could ever run it; it names the largest. None where one could."""
    suitable = [node for node in nodes if matches(node, on)]
    if not suitable:
        return why_unknown(nodes, (), on) or "the yard has no nodes"
    if any(Room(node).instances(ask, overcommit) for node in suitable):
        return None
    largest = max(suitable, key=lambda node: _closeness(node, ask))
    return f"a task needs {ask}; the largest node, {largest.id}, has {describe(largest)}"


def why_unknown(nodes: Iterable[Node], awaited: Iterable[NodeConfig], on: str) -> str | None:
    """A sentence if `on` has a name that is no node, executor or label; it says which there are."""
    names: set[str] = set()
    labels: set[str] = set()
    for node in nodes:
        names |= {node.id, node.executor}
        labels |= set(node.labels)
    for config in awaited:
        names |= {config.id, SSH}
        labels |= set(config.labels)
    unknown = [name for name in on.split(",") if on and name not in names | labels]
    if not unknown:
        return None
    of_labels = f"; labels: {', '.join(sorted(labels))}" if labels else ""
    return f"there is no node {unknown[0]!r}; known: {', '.join(sorted(names)) or 'none'}{of_labels}"


def _closeness(node: Node, ask: Resources) -> tuple[int, int, int, int]:
    return (min(len(node.devices), ask.gpus), node.memory_mib, node.cpu_millis, sum(d.memory_mib for d in node.devices))


def describe(node: Node) -> str:
    text = f"{show_cpus(node.cpu_millis)} cpus, {show_mib(node.memory_mib)} memory"
    if not node.devices:
        return text + ", no GPU"
    kinds = sorted({f"{d.name} with {show_mib(d.memory_mib)}{' (fake)' if d.fake else ''}" for d in node.devices})
    return f"{text}, {len(node.devices)} GPU{'s' if len(node.devices) > 1 else ''}: {', '.join(kinds)}"


def why_not_now(
    rooms: Sequence[Room],
    ask: Resources,
    on: str,
    overcommit: bool = False,
    *,
    ahead: str = "",
    awaited: Sequence[NodeConfig] = (),
) -> Wait:
    """It does not fit now. `ahead` is the earlier job whose room it may not take, if that is why."""
    suitable = [room for room in rooms if matches(room.node, on) and room.instances(ask, overcommit)]
    able = [room for room in suitable if room.node.state is NodeState.UP]
    unable = [f"{room.node.id} is {room.node.state.lower()}" for room in suitable if room not in able]
    unable += [f"{config.id} has not been reached yet" for config in awaited if may_match(config, on)]
    if not able and unable:
        return Wait(Reason.NODE_DOWN, f"no node can take it now: {', '.join(unable)}")
    if not rooms:
        return Wait(Reason.NODE_DOWN, "the yard has no nodes yet")
    if never := why_never([room.node for room in rooms], ask, on, overcommit):
        return Wait(Reason.NEVER_FITS, never)
    if any(room.place(ask, overcommit) for room in able):
        return Wait(Reason.PRIORITY, f"job {ahead} is ahead of it and waits for the same resources")
    nearest = min(able, key=lambda room: (len(_lacking(room, ask, overcommit)), room.slots))
    sentence = f"needs {ask}; {nearest.node.id} has {' and '.join(_lacking(nearest, ask, overcommit))}"
    if nearest.node.foreign.holders:
        sentence += f" (others hold part of it: {', '.join(nearest.node.foreign.holders[:3])})"
    if len(able) > 1:
        sentence += f", and the other {len(able) - 1} suitable node{'s' if len(able) > 2 else ''} no more"
    return Wait(Reason.RESOURCES, "; ".join([sentence, *unable]))


def may_match(config: NodeConfig, on: str) -> bool:
    """Is it one of those that `on` names, once it is reached?"""
    return not on or any(name in (config.id, SSH) or name in config.labels for name in on.split(","))


def why_not_together(placed: int, wanted: int) -> Wait:
    return Wait(Reason.RESOURCES, f"its {wanted} tasks start together, and there is room for {placed} of them now")


def _lacking(room: Room, ask: Resources, overcommit: bool) -> list[str]:
    if room.is_whole:
        return ["a task that was given all of it"]
    lacking = []
    if ask.whole_node and room.slots:
        lacking.append(f"{room.slots} slot{'s' if room.slots > 1 else ''} in use")
    if ask.whole_node and room.has_others:
        lacking.append("others on it")
    if max(0, room.free_cpu_millis(overcommit)) < ask.cpu_millis:
        lacking.append(f"{show_cpus(max(0, room.cpu_millis))} of {show_cpus(room.node.cpu_millis)} cpus free")
    if max(0, room.memory_mib) < ask.memory_mib:
        lacking.append(f"{show_mib(max(0, room.memory_mib))} of {show_mib(room.node.memory_mib)} memory free")
    usable = sum(device.can_give(ask, overcommit) for device in room.devices) if ask.gpus else 0
    if usable < ask.gpus and not ask.whole_node:
        enough = f"GPUs with {ask.gpu_share} free" if ask.shares_gpus else "free GPUs"
        lacking.append(f"{usable} {enough} of {len(room.devices)}")
    return lacking or ["no room"]
