"""Explanation: why does a job wait, or why can it never run? One sentence for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jobyard.model.gpu_kinds import is_of_kind
from jobyard.model.job import Reason
from jobyard.model.node import Node, NodeConfig, NodeState, cluster_of
from jobyard.model.resources import Resources
from jobyard.model.units import show_cpus, show_mib
from jobyard.scheduling.devices import suits
from jobyard.scheduling.placement import Room
from jobyard.scheduling.snapshot import Wait
from jobyard.scheduling.where import ANYWHERE, Where, has_label, is_meant, is_owners_alone, matches, schedulable

NAMED_MOST = 5  # a cluster may have a thousand nodes that are down
OWNERS_ALONE = "add a node (yard nodes add HOST) or a cluster, or serve with --run-as USER"  # the way out for tokens
SSH = "ssh"  # the executor of all machines that users add


def why_never(nodes: Iterable[Node], ask: Resources, where: Where = ANYWHERE, overcommit: bool = False) -> str | None:
    """A sentence if no node, even empty, could ever run it; it names the largest. None where one could.

    Taints come and go, so they never mean that it can never run.
    """
    nodes = schedulable(node for node in nodes if cluster_of(node.id) == where.cluster)
    suitable = [node for node in nodes if where.has_labels(node)]
    if not suitable:
        return _why_nowhere(nodes, where)
    if any(Room(node).instances(ask, overcommit) for node in suitable):
        return None
    if unknown := why_no_kind(suitable, ask.gpu_kind):
        return unknown
    largest = max(suitable, key=lambda node: _closeness(node, ask))
    return f"a task needs {ask}; the largest node, {largest.id}, has {describe(largest)}"


def _why_nowhere(nodes: Sequence[Node], where: Where) -> str:
    if not nodes:
        return f"cluster {where.cluster} has no nodes" if where.cluster else "the yard has no nodes"
    if not where.cluster:
        unknown = why_unknown(nodes, (), where.on)
        alone = unknown or why_owners_alone(nodes, where) or why_no_container(nodes, where)
        return alone or _why_unnamed(nodes, where) or "the yard has no nodes"
    lacking = [label for label in where.labels if not any(has_label(node, label) for node in nodes)]
    if lacking:
        return f"no node of cluster {where.cluster} has label {lacking[0]}"
    return f"no node of cluster {where.cluster} has all of the labels {', '.join(where.labels)}"


def _why_unnamed(nodes: Sequence[Node], where: Where) -> str | None:
    kept = [node.id for node in nodes if node.only_named and not matches(node, where.on)]
    return f"{_some_of(kept)} takes only jobs that name it; name it with --on" if kept else None


def why_owners_alone(nodes: Iterable[Node], where: Where) -> str | None:
    """A sentence if it came with a token, and only machines of the server's account could have it."""
    meant = [node for node in nodes if not cluster_of(node.id) and matches(node, where.on)]
    if not where.with_token or not meant or not all(map(is_owners_alone, meant)):
        return None
    return f"{_some_of([node.id for node in meant])} is the server's own machine and takes only its owner's jobs"


def why_no_container(nodes: Iterable[Node], where: Where) -> str | None:
    """A sentence if containers are wanted and no machine that may be chosen can run them."""
    if not where.in_container:
        return None
    meant = [node for node in nodes if not cluster_of(node.id) and matches(node, where.on)]
    if not meant or any(node.runtime for node in meant):
        return None
    told = [f"{node.id} {node.runtime_problem or 'has not told yet whether it has docker or podman'}" for node in meant]
    return f"no node can run containers: {_some_of(told)}"


def why_unknown(
    nodes: Iterable[Node], unreached: Iterable[NodeConfig], on: str, clusters: Iterable[str] = ()
) -> str | None:
    """A sentence if `on` has a name that is no node, executor or label; it says which there are."""
    names: set[str] = set(clusters)
    labels: set[str] = set()
    for node in nodes:
        if cluster_of(node.id):
            continue  # a node of a cluster is not named by itself, but by its cluster
        names |= {node.id, node.executor}
        labels |= set(node.labels)
    for config in unreached:
        names |= {config.id, SSH}
        labels |= set(config.labels)
    unknown = [name for name in on.split(",") if on and name not in names | labels]
    if not unknown:
        return None
    of_labels = f"; labels: {', '.join(sorted(labels))}" if labels else ""
    return f"there is no node {unknown[0]!r}; known: {', '.join(sorted(names)) or 'none'}{of_labels}"


def why_no_kind(nodes: Iterable[Node], kind: str) -> str | None:
    """A sentence if none of their GPUs is of this kind; it says which kinds there are."""
    devices = [(device, node.id) for node in nodes for device in node.devices]
    if not kind or any(is_of_kind(kind, device.name, device.profile) for device, _ in devices):
        return None
    there: dict[str, str] = {}
    for device, node in devices:
        there.setdefault(f"{device.name}{' (fake)' if device.fake else ''}", node)
    if not there:
        return f"there is no {kind} GPU, and no other one"
    return f"there is no {kind} GPU; there are {_some_of([f'{name} on {node}' for name, node in there.items()])}"


def _closeness(node: Node, ask: Resources) -> tuple[int, int, int, int]:
    fitting = sum(suits(device, ask) for device in node.devices)
    return (min(fitting, ask.gpus), node.memory_mib, node.cpu_millis, sum(d.memory_mib for d in node.devices))


def describe(node: Node) -> str:
    cpus = show_cpus(node.cpu_millis)
    text = f"{cpus} cpu{'s' if cpus != '1' else ''}, {show_mib(node.memory_mib)} memory"
    if not node.devices:
        return text + ", no GPU"
    kinds = sorted({f"{d.name} with {show_mib(d.memory_mib)}{' (fake)' if d.fake else ''}" for d in node.devices})
    return f"{text}, {len(node.devices)} GPU{'s' if len(node.devices) > 1 else ''}: {', '.join(kinds)}"


def why_not_now(
    rooms: Sequence[Room],
    ask: Resources,
    where: Where = ANYWHERE,
    overcommit: bool = False,
    *,
    ahead: str = "",
    unreached: Sequence[NodeConfig] = (),
) -> Wait:
    """It does not fit now. `ahead` is the earlier job whose room it may not take, if that is why."""
    rooms = [room for room in rooms if cluster_of(room.node.id) == where.cluster]
    suitable = [room for room in rooms if where.has_labels(room.node) and room.instances(ask, overcommit)]
    allowed = [room for room in suitable if not where.untolerated(room.node)]
    able = [room for room in allowed if room.node.state is NodeState.UP]
    unable = [f"{room.node.id} is {room.node.state.lower()}" for room in allowed if room.node.state is not NodeState.UP]
    if not where.cluster:
        unable += [f"{config.id} has not been reached yet" for config in unreached if may_match(config, where.on)]
    if not able and unable:
        return Wait(Reason.NODE_DOWN, f"no node can take it now: {_some_of(unable)}")
    if not rooms:
        there = f"cluster {where.cluster}" if where.cluster else "the yard"
        return Wait(Reason.NODE_DOWN, f"{there} has no nodes yet")
    if not suitable and (never := why_never([room.node for room in rooms], ask, where, overcommit)):
        return Wait(Reason.NEVER_FITS, never)
    if not allowed:
        others = [room.node for room in rooms if where.has_labels(room.node) and room not in suitable]
        small = [node for node in others if not where.untolerated(node)]
        return Wait(Reason.RESOURCES, _why_kept_off(suitable, small, ask, where))
    if any(room.place(ask, overcommit) for room in able):
        return Wait(Reason.PRIORITY, f"job {ahead} is ahead of it and waits for the same resources")
    nearest = min(able, key=lambda room: (len(_lacking(room, ask, overcommit)), room.slots))
    sentence = f"needs {ask}; {nearest.node.id} has {' and '.join(_lacking(nearest, ask, overcommit))}"
    if nearest.node.foreign.holders:
        sentence += f" (others hold part of it: {', '.join(nearest.node.foreign.holders[:3])})"
    if len(able) > 1:
        rest = f"{len(able) - 1} suitable nodes have" if len(able) > 2 else "suitable node has"
        sentence += f", and the other {rest} no more"
    return Wait(Reason.RESOURCES, "; ".join(filter(None, (sentence, _some_of(unable, "; ")))))


def _some_of(names: Sequence[str], between: str = ", ") -> str:
    more = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
    return between.join(names[:NAMED_MOST]) + more


def _why_kept_off(rooms: Sequence[Room], small: Sequence[Node], ask: Resources, where: Where) -> str:
    """`small` are nodes that would take it, but could never hold it."""
    nodes = [room.node for room in rooms]
    told = [f"{node.id} is tainted {', '.join(map(str, where.untolerated(node)))}" for node in nodes]
    if not small:
        return f"it tolerates the taints of no node of cluster {where.cluster}: {_some_of(told)}"
    too_small = [f"{node.id} is too small ({describe(node)})" for node in small]
    return f"needs {ask}, and no node of cluster {where.cluster} will do: {_some_of(too_small)}; {_some_of(told)}"


def may_match(config: NodeConfig, on: str) -> bool:
    """Will it be one of those that `on` names, once it is reached?"""
    return is_meant(on, config.id, SSH, config.labels, config.only_named)


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
        gpus = f"{ask.gpu_kind} GPUs".strip()
        enough = f"{gpus} with {ask.gpu_share} free" if ask.shares_gpus else f"free {gpus}"
        enough += f" (each of at least {show_mib(ask.least_device_mib)})" if ask.least_device_mib else ""
        lacking.append(f"{usable} {enough} of {len(room.devices)}")
    return lacking or ["no room"]
