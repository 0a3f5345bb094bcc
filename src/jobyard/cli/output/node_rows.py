"""Rows of nodes and their GPUs: what does a list, `yard nodes` or `yard top`, say of each?"""

from __future__ import annotations

import re
from collections.abc import Callable

from jobyard.cli.output.text import Painted
from jobyard.model.node import NodeState, place_of
from jobyard.model.units import show_cpus, show_mib
from jobyard.wire.views import DeviceView, NodeView

NODE_HEADERS = ("NODE", "STATE", "EXECUTOR", "CPUS", "MEMORY", "TASKS", "LOAD", "LABELS", "HOST")
DEVICE_HEADERS = ("NODE", "GPU", "MEMORY", "RESERVED", "OTHERS", "USED", "BUSY", "NAME")
# Left out on a narrow terminal, the first one first.
SPARE_NODE_HEADERS = ("HOST", "LABELS", "EXECUTOR", "LOAD", "TASKS")
SPARE_DEVICE_HEADERS = ("NAME", "BUSY", "OTHERS", "USED")
GPU_PRODUCT = "nvidia.com/gpu.product="
_GIVEN = re.compile(r"([^/=]+\.)?(kubernetes\.io|k8s\.io|nvidia\.com)/")  # prefixes of labels that programs give
STATE_COLOURS = {NodeState.UP: "green", NodeState.DRAINING: "yellow", NodeState.AWAY: "yellow", NodeState.DOWN: "red"}


def node_row(node: NodeView) -> tuple[str, ...]:
    return (
        node.id,
        Painted(node.state.value, STATE_COLOURS[node.state]),
        node.executor,
        _of(node.cpu_millis_reserved, node.cpu_millis, node.cpu_millis_foreign, show_cpus),
        _of(node.memory_mib_reserved, node.memory_mib, node.memory_mib_foreign, show_mib),
        str(node.tasks),
        "-" if node.load is None else f"{node.load:.2f}",
        ",".join(_own_labels(node)) or "-",
        node.host or "-",
    )


def _own_labels(node: NodeView) -> list[str]:
    """Labels that people gave it; for a cluster's node not those of Kubernetes itself. JSON output has all of them."""
    if place_of(node.id) == node.id:
        return list(node.labels)
    return [label for label in node.labels if label.startswith(GPU_PRODUCT) or not _GIVEN.match(label)]


def _of(reserved: int, total: int, foreign: int, show: Callable[[int], str]) -> str:
    others = f" (+{show(foreign)} others)" if foreign else ""
    return f"{show(reserved)} of {show(total)}{others}"


def device_rows(node: NodeView) -> list[tuple[str, ...]]:
    """A row for each; those of a cluster's node that are alike are counted."""
    if place_of(node.id) == node.id or not node.devices:
        return [_device_row(node, device) for device in node.devices]
    by_name: dict[str, list[DeviceView]] = {}
    for device in node.devices:
        by_name.setdefault(device.name, []).append(device)
    return [_alike_row(node, devices) for devices in by_name.values()]


def _alike_row(node: NodeView, devices: list[DeviceView]) -> tuple[str, ...]:
    first = devices[0]
    taken = f"{sum(map(is_taken, devices))} of {len(devices)}"
    memory = show_mib(first.memory_mib) if first.memory_mib else "-"
    return (node.id, f"{len(devices)}x", memory, taken, "-", "-", "-", first.name)


def _device_row(node: NodeView, device: DeviceView) -> tuple[str, ...]:
    return (
        node.id,
        str(device.index),
        show_mib(device.memory_mib),
        show_mib(device.reserved_mib),
        show_mib(device.foreign_mib),
        "-" if device.used_mib is None else show_mib(device.used_mib),
        "-" if device.percent is None else f"{device.percent} %",
        f"{device.name} (fake)" if device.fake else device.name,
    )


def is_taken(device: DeviceView) -> bool:
    return bool(device.reserved_mib or device.foreign_mib or device.is_taken)
