"""Where does it fit? Free room per node, best fit, and what must stay free for those who come first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

from jobyard.model.node import Node, NodeState
from jobyard.model.resources import DeviceSlice, Placement, Resources


@dataclass(slots=True)
class FreeDevice:
    index: int
    total_mib: int
    free_mib: int
    untouched: bool  # nobody, of this yard or outside it, has any part of it

    def can_give(self, ask: Resources) -> bool:
        return self.free_mib >= ask.gpu_memory_mib if ask.shares_gpus else self.untouched


class Protected(NamedTuple):
    """What an earlier job waits for: no later one may take it."""

    resources: Resources
    wanted: int
    on: str


class Room:
    """What is free on one node during one cycle. Mutable: choosing takes from it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.cpu_millis = node.cpu_millis - node.foreign.cpu_millis
        self.memory_mib = node.memory_mib - node.foreign.memory_mib
        foreign = dict(node.foreign.device_mib)
        self.devices = [
            FreeDevice(
                device.index,
                device.memory_mib,
                device.memory_mib - foreign.get(device.index, 0),
                not foreign.get(device.index, 0),
            )
            for device in node.devices
        ]
        for device in self.devices:
            if device.index in node.foreign.whole_devices:
                device.free_mib, device.untouched = 0, False

    def copy(self) -> Room:
        """For what-if questions."""
        room = copy(self)
        room.devices = [replace(device) for device in self.devices]
        return room

    def give(self, placement: Placement) -> None:
        """Take a placement's amounts out of the room."""
        self.cpu_millis -= placement.resources.cpu_millis
        self.memory_mib -= placement.resources.memory_mib
        slices = {piece.index: piece.memory_mib for piece in placement.devices}
        for device in self.devices:
            if device.index in slices:
                device.free_mib -= slices[device.index]
                device.untouched = False

    def take_back(self, placement: Placement) -> None:
        """The inverse of `give`, for what-if questions. A device counts as untouched again once all of it is free."""
        self.cpu_millis += placement.resources.cpu_millis
        self.memory_mib += placement.resources.memory_mib
        slices = {piece.index: piece.memory_mib for piece in placement.devices}
        for device in self.devices:
            if device.index in slices:
                device.free_mib += slices[device.index]
                device.untouched = device.free_mib >= device.total_mib

    def choose_devices(self, ask: Resources) -> tuple[DeviceSlice, ...] | None:
        """Best fit: shared devices with the least free memory first, so that whole ones stay whole."""
        if not ask.gpus:
            return ()
        usable = sorted((d for d in self.devices if d.can_give(ask)), key=lambda d: (d.free_mib, d.index))
        if len(usable) < ask.gpus:
            return None
        return tuple(
            DeviceSlice(d.index, ask.gpu_memory_mib if ask.shares_gpus else d.total_mib)
            for d in sorted(usable[: ask.gpus], key=lambda d: d.index)
        )

    def place(self, ask: Resources) -> Placement | None:
        # Measured use of others may exceed what is there: who asks for nothing of it still fits.
        if max(0, self.cpu_millis) < ask.cpu_millis or max(0, self.memory_mib) < ask.memory_mib:
            return None
        devices = self.choose_devices(ask)
        return None if devices is None else Placement(self.node.id, ask, devices)

    def instances(self, ask: Resources) -> int:
        """How many such tasks the node could hold if it were empty; 0: never."""
        return min(
            self.node.cpu_millis // ask.cpu_millis if ask.cpu_millis else 1 << 30,
            self.node.memory_mib // ask.memory_mib if ask.memory_mib else 1 << 30,
            _gpu_instances(self.node, ask),
        )

    def hurts(self, placement: Placement, protected: Iterable[Protected]) -> bool:
        """Would this placement take something that the tasks of earlier jobs, all of them together, still need here?"""
        needs = [
            (each.resources, needed)
            for each in protected
            if matches(self.node, each.on) and (needed := min(each.wanted, self.instances(each.resources)))
        ]
        ask = placement.resources
        cpu_millis = sum(earlier.cpu_millis * needed for earlier, needed in needs)
        if ask.cpu_millis and cpu_millis and self.cpu_millis - ask.cpu_millis < cpu_millis:
            return True
        memory_mib = sum(earlier.memory_mib * needed for earlier, needed in needs)
        if ask.memory_mib and memory_mib and self.memory_mib - ask.memory_mib < memory_mib:
            return True
        return bool(ask.gpus) and not self._devices_suffice(placement, needs)

    def _devices_suffice(self, placement: Placement, needs: Iterable[tuple[Resources, int]]) -> bool:
        """Beside the placement, could all that is needed get its devices now?"""
        left = self.copy()
        left.give(placement)
        for earlier, needed in needs:
            for _ in range(needed if earlier.gpus else 0):
                pieces = left.choose_devices(earlier)
                if pieces is None:
                    return False
                left.give(Placement(self.node.id, earlier, pieces))
        return True

    def leftover(self, ask: Resources) -> float:
        """How much of the node would stay free, 0..n; a node with idle GPUs is the last choice of a task without."""
        left = (self.cpu_millis - ask.cpu_millis) / max(1, self.node.cpu_millis)
        left += (self.memory_mib - ask.memory_mib) / max(1, self.node.memory_mib)
        if self.devices:
            free = sum(device.free_mib for device in self.devices) / sum(device.total_mib for device in self.devices)
            left += free if ask.gpus else 1 + free
        return left


def _gpu_instances(node: Node, ask: Resources) -> int:
    if not ask.gpus:
        return 1 << 30
    if not ask.shares_gpus:
        return len(node.devices) // ask.gpus
    parts = [device.memory_mib // ask.gpu_memory_mib for device in node.devices]
    instances = sum(parts) // ask.gpus
    while sum(min(part, instances) for part in parts) < instances * ask.gpus:  # one task's GPUs are different devices
        instances -= 1
    return instances


def matches(node: Node, on: str) -> bool:
    return not on or on in (node.id, node.executor) or on in node.labels


def choose_node(
    rooms: Iterable[Room], ask: Resources, on: str, protected: Sequence[Protected] = ()
) -> Placement | None:
    """The tightest node that takes it without hurting anyone in `protected`."""
    best: tuple[float, str, Placement] | None = None
    for room in rooms:
        if room.node.state is not NodeState.UP or not matches(room.node, on):
            continue
        placement = room.place(ask)
        if placement is None:
            continue
        if protected and room.hurts(placement, protected):
            continue
        candidate = (room.leftover(ask), room.node.id, placement)
        if best is None or candidate[:2] < best[:2]:
            best = candidate
    return best[2] if best else None
