"""GPUs of a pod: which devices of a cluster's node are counted for the pod that runs there?"""

from __future__ import annotations

from collections.abc import Iterable

from jobyard.model.node import Node
from jobyard.model.resources import DeviceSlice, Placement, Resources


def devices_for(resources: Resources, node: Node | None, others: Iterable[Placement]) -> tuple[DeviceSlice, ...]:
    """The first free ones; where there are too few of them, any. None where the node is not known."""
    if node is None or not resources.gpus:
        return ()
    taken = {piece.index for other in others if other.node == node.id for piece in other.devices}
    order = sorted(node.devices, key=lambda device: (device.index in taken, device.index))
    chosen = sorted(order[: resources.gpus], key=lambda device: device.index)
    return tuple(DeviceSlice(device.index, device.memory_mib) for device in chosen)
