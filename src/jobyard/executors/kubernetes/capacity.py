"""Capacity of a cluster: how much is there, and what do others hold of it? Pure: objects in, the yard's nouns out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import add
from typing import Any, NamedTuple

from jobyard.kubernetes.gpus import GPU, GPU_PRODUCT, MIG
from jobyard.kubernetes.quantities import cpu_millis, mib, quantity
from jobyard.model.node import Device, Foreign, Node, Quota, Taint

Object = dict[str, Any]
GPU_MEMORY = "nvidia.com/gpu.memory"  # a label of NVIDIA's feature discovery, in MiB
KWOK = "kwok.x-k8s.io/node"  # an annotation of nodes that are simulated
_PROFILE_MEMORY = re.compile(r"\.([0-9]+)gb")
UNKNOWN_GPU_MIB = 1024  # of a GPU whose memory nobody tells: they are given whole, and so the number does not matter


class Amounts(NamedTuple):
    """What pods ask for."""

    cpu_millis: int = 0
    memory_mib: int = 0
    gpus: int = 0
    pods: int = 0
    slices: tuple[tuple[str, int], ...] = ()  # of GPUs: a profile of MIG, and how many

    def plus(self, other: Amounts) -> Amounts:
        return self._with(other, add)

    def at_least(self, other: Amounts) -> Amounts:
        return self._with(other, max)

    def times(self, sign: int) -> Amounts:
        slices = tuple((profile, sign * count) for profile, count in self.slices)
        return Amounts(sign * self.cpu_millis, sign * self.memory_mib, sign * self.gpus, sign * self.pods, slices)

    def _with(self, other: Amounts, together: Callable[[int, int], int]) -> Amounts:
        mine, theirs = dict(self.slices), dict(other.slices)
        slices = {name: together(mine.get(name, 0), theirs.get(name, 0)) for name in sorted({*mine, *theirs})}
        return Amounts(
            together(self.cpu_millis, other.cpu_millis),
            together(self.memory_mib, other.memory_mib),
            together(self.gpus, other.gpus),
            together(self.pods, other.pods),
            tuple((name, count) for name, count in slices.items() if count),
        )


def node_of(cluster: str, seen: Object) -> Node:
    """What its pods may have in all. Taints keep pods away: Kubernetes itself taints a node that is cordoned or
    does not answer."""
    metadata, allocatable = seen["metadata"], seen.get("status", {}).get("allocatable", {})
    labels: dict[str, str] = metadata.get("labels") or {}
    is_fake = KWOK in (metadata.get("annotations") or {})
    return Node(
        f"{cluster}/{metadata['name']}",
        "kubernetes",
        int(quantity(allocatable.get("cpu", "0")) * 1000),
        int(quantity(allocatable.get("memory", "0")) / (1 << 20)),
        tuple(replace(each, index=i, fake=is_fake) for i, each in enumerate(_devices(allocatable, labels))),
        labels=tuple(sorted(f"{key}={value}" for key, value in labels.items())),
        boot_id=seen.get("status", {}).get("nodeInfo", {}).get("bootID", ""),
        taints=tuple(
            Taint(taint["key"], taint.get("value", ""), taint["effect"])
            for taint in seen.get("spec", {}).get("taints") or ()
            if taint["effect"] != "PreferNoSchedule"
        ),
    )


def _devices(allocatable: Object, labels: dict[str, str]) -> Iterator[Device]:
    """Whole GPUs, and then the slices of others that the device plugin counts apart."""
    memory = int(float(labels.get(GPU_MEMORY) or 0)) or UNKNOWN_GPU_MIB
    product = labels.get(GPU_PRODUCT) or "GPU"
    for _ in range(_whole(allocatable.get(GPU, "0"))):
        yield Device(0, product, memory)
    for name in sorted(allocatable):
        profile = name.removeprefix(MIG)
        if profile == name:
            continue
        told = int(float(labels.get(f"{name}.memory") or 0))
        gigabytes = _PROFILE_MEMORY.search(profile)
        mib = told or (int(gigabytes[1]) * 1024 if gigabytes else UNKNOWN_GPU_MIB)
        for _ in range(_whole(allocatable[name])):
            yield Device(0, f"{product} MIG {profile}", mib, profile=profile)


def queue_node(cluster: str) -> Node:
    """Where jobs wait that another scheduler lets in."""
    return Node(f"{cluster}/queue", "kubernetes", 0, 0, is_queue=True)


def asked_by(pod: Object) -> Amounts:
    """As kube-scheduler counts: the containers together, or one init container alone if that is more, and sidecars
    beside them all."""
    spec = pod["spec"]
    total, first = Amounts(pods=1), Amounts()
    for container in spec.get("initContainers") or ():
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            total = total.plus(asked)
        else:
            first = first.at_least(asked)
    for container in spec.get("containers") or ():
        total = total.plus(_asked(container))
    total = total.at_least(first)
    overhead = spec.get("overhead") or {}
    return total.plus(Amounts(cpu_millis(overhead.get("cpu", "0")), mib(overhead.get("memory", "0"))))


def _asked(container: Object) -> Amounts:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    counts = ((name.removeprefix(MIG), _whole(asked[name])) for name in sorted(asked) if name.startswith(MIG))
    slices = tuple((profile, count) for profile, count in counts if count)
    cores, memory = cpu_millis(asked.get("cpu", "0")), mib(asked.get("memory", "0"))
    return Amounts(cores, memory, _whole(asked.get(GPU, "0")), slices=slices)


def foreign_of(asked: Amounts, ours: Collection[int], devices: Sequence[Device]) -> Foreign:
    """What others hold on a node. Nobody tells which GPUs they have: the last ones that we do not have are assumed."""
    taken: list[int] = []
    for profile, count in (("", asked.gpus), *asked.slices):
        free = [device.index for device in devices if device.profile == profile and device.index not in ours]
        taken += free[len(free) - min(count, len(free)) :]
    return Foreign(asked.cpu_millis, asked.memory_mib, whole_devices=tuple(sorted(taken)))


def quota_of(quotas: Iterable[Object], ours: Amounts) -> Quota:
    """What is left for us in all, our own pods included: the smallest of all quotas without a scope."""
    left: dict[str, int] = {}
    for seen in quotas:
        spec, status = seen.get("spec", {}), seen.get("status", {})
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        hard, used = status.get("hard") or spec.get("hard") or {}, status.get("used") or {}
        for name, key, read in _QUOTED:
            if key in hard:
                others = read(used.get(key, "0")) - getattr(ours, "pods" if name == "tasks" else name)
                room = max(0, read(hard[key]) - max(0, others))
                left[name] = min(left.get(name, room), room)
    return Quota(**left)


def _whole(text: str | float) -> int:
    return int(quantity(text))


_QUOTED = (
    ("cpu_millis", "requests.cpu", cpu_millis),
    ("cpu_millis", "cpu", cpu_millis),
    ("memory_mib", "requests.memory", mib),
    ("memory_mib", "memory", mib),
    ("gpus", f"requests.{GPU}", _whole),
    ("tasks", "pods", _whole),
    ("tasks", "count/pods", _whole),
)
