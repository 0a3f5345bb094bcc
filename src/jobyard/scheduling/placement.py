"""Placement: on which node does a task fit? Free resources per node, best fit, and what is kept for earlier jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import NamedTuple

from jobyard.model.node import Node, NodeState
from jobyard.model.resources import DeviceSlice, Placement, Resources
from jobyard.scheduling.devices import choose_devices, free_devices, gpu_instances, suits
from jobyard.scheduling.where import ANYWHERE, Where

CORES_OVERCOMMITTED_MILLIS = 2000  # the limit of execute_batch
_ANY_NUMBER = 1 << 30


class Protected(NamedTuple):
    """What an earlier job waits for: no later one may take it."""

    resources: Resources
    wanted: int
    where: Where = ANYWHERE
    overcommit: bool = False


class Room:
    """What is free on one node during one cycle. Mutable: choosing takes from it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.cpu_millis = node.cpu_millis - node.foreign.cpu_millis
        self.memory_mib = node.memory_mib - node.foreign.memory_mib
        self.devices = free_devices(node)
        self.slots = 0  # of this yard
        self.is_whole = False  # one of them has the whole node

    def copy(self) -> Room:
        """For what-if questions."""
        room = copy(self)
        room.devices = [replace(device) for device in self.devices]
        return room

    def give(self, placement: Placement) -> None:
        """Take a placement's amounts out of the room: in full and at once, also before its task allocates them."""
        self.cpu_millis -= placement.resources.cpu_millis
        self.memory_mib -= placement.resources.memory_mib
        self.slots += 1
        self.is_whole = self.is_whole or placement.resources.whole_node
        slices = {piece.index: piece.memory_mib for piece in placement.devices}
        for device in self.devices:
            if device.index in slices:
                device.give(slices[device.index], placement.resources)

    def take_back(self, placement: Placement) -> None:
        """The inverse of `give`, for what-if questions."""
        self.cpu_millis += placement.resources.cpu_millis
        self.memory_mib += placement.resources.memory_mib
        self.slots -= 1
        self.is_whole = self.is_whole and not placement.resources.whole_node
        slices = {piece.index: piece.memory_mib for piece in placement.devices}
        for device in self.devices:
            if device.index in slices:
                device.take_back(slices[device.index], placement.resources)

    def choose_devices(self, ask: Resources, overcommit: bool = False) -> tuple[DeviceSlice, ...] | None:
        return choose_devices(self.devices, ask, overcommit)

    def place(self, ask: Resources, overcommit: bool = False) -> Placement | None:
        if self.node.is_queue:
            return Placement(self.node.id, ask)
        if self.is_whole:
            return None
        # Measured use of others may exceed what is there: a task that asks for none of it still fits.
        if max(0, self.free_cpu_millis(overcommit)) < ask.cpu_millis or max(0, self.memory_mib) < ask.memory_mib:
            return None
        if ask.whole_node:
            return self._place_whole(ask)
        devices = self.choose_devices(ask, overcommit)
        return None if devices is None else Placement(self.node.id, ask, devices)

    def _place_whole(self, ask: Resources) -> Placement | None:
        """The whole node, if it is empty."""
        if self.slots or self.has_others or not gpu_instances(self.node, ask):
            return None
        memory_mib, gpus = max(0, self.memory_mib), len(self.devices)
        everything = Resources(self.cpu_millis, memory_mib, gpus, whole_node=True, memory_limit=ask.memory_limit)
        devices = tuple(DeviceSlice(device.index, device.total_mib) for device in self.devices)
        return Placement(self.node.id, everything, devices)

    @property
    def has_others(self) -> bool:
        """Does another yard hold anything here, or another process a GPU? Memory does not count: it is always used."""
        foreign = self.node.foreign
        return bool(foreign.cpu_millis or foreign.device_mib or foreign.whole_devices)

    def free_cpu_millis(self, overcommit: bool = False) -> int:
        """Cores are overcommitted among our own tasks only, never where another yard has reserved some."""
        allowed = overcommit and not self.node.foreign.cpu_millis
        return self.cpu_millis + (CORES_OVERCOMMITTED_MILLIS if allowed else 0)

    def instances(self, ask: Resources, overcommit: bool = False) -> int:
        """How many such tasks the node could hold if it were empty; 0: never."""
        if self.node.is_queue:
            return _ANY_NUMBER
        cpu_millis = self.node.cpu_millis + (CORES_OVERCOMMITTED_MILLIS if overcommit else 0)
        return min(
            cpu_millis // ask.cpu_millis if ask.cpu_millis else _ANY_NUMBER,
            self.node.memory_mib // ask.memory_mib if ask.memory_mib else _ANY_NUMBER,
            gpu_instances(self.node, ask, overcommit),
            1 if ask.whole_node else _ANY_NUMBER,
        )

    def hurts(self, placement: Placement, protected: Iterable[Protected]) -> bool:
        """Would this placement take something that earlier jobs, all together, still need here?"""
        if self.node.is_queue:
            return False
        needs = [
            (each, needed)
            for each in protected
            if each.where.allows(self.node)
            and (needed := min(each.wanted, self.instances(each.resources, each.overcommit)))
        ]
        if not needs:
            return False
        ask = placement.resources
        if ask.whole_node or any(each.resources.whole_node for each, _ in needs):
            return True
        cpu_millis = sum(each.resources.cpu_millis * needed for each, needed in needs)
        free_millis = self.free_cpu_millis(overcommit=all(each.overcommit for each, _ in needs))
        if ask.cpu_millis and cpu_millis and free_millis - ask.cpu_millis < cpu_millis:
            return True
        memory_mib = sum(each.resources.memory_mib * needed for each, needed in needs)
        if ask.memory_mib and memory_mib and self.memory_mib - ask.memory_mib < memory_mib:
            return True
        return bool(ask.gpus) and not self._devices_suffice(placement, needs)

    def _devices_suffice(self, placement: Placement, needs: Sequence[tuple[Protected, int]]) -> bool:
        """Beside the placement, could all that is needed get its devices now? What cannot, for want of a kind that the
        placement takes nothing of, does not count."""
        left = self.copy()
        left.give(placement)
        for each, needed in needs:
            for _ in range(needed if each.resources.gpus else 0):
                pieces = left.choose_devices(each.resources, each.overcommit)
                if pieces is None and self._competes(placement, each.resources, needs):
                    return False
                if pieces is None:
                    break
                left.give(Placement(self.node.id, each.resources, pieces))
        return True

    def _competes(self, placement: Placement, ask: Resources, needs: Iterable[tuple[Protected, int]]) -> bool:
        """Are its devices some that such a task could use, or that push others of those who wait onto such?"""
        devices = [device.device for device in self.devices]
        taken = {piece.index for piece in placement.devices}
        usable = [
            {device.index for device in devices if suits(device, each.resources)}
            for each, _ in needs
            if each.resources.gpus
        ]
        while near := [indices for indices in usable if indices & taken]:
            usable = [indices for indices in usable if not indices & taken]
            taken = taken.union(*near)
        return any(device.index in taken and suits(device, ask) for device in devices)

    def waste_mib(self, placement: Placement) -> int:
        """Of the GPUs that it takes a part of: how much would stay free; of those that it takes whole: their size."""
        slices = {piece.index: piece.memory_mib for piece in placement.devices}
        taken = [device for device in self.devices if device.index in slices]
        if not placement.resources.shares_gpus:
            return sum(device.total_mib for device in taken)
        return sum(device.free_mib - slices[device.index] for device in taken)

    def leftover(self, ask: Resources) -> float:
        """How much of the node would stay free, 0..n; a node with idle GPUs is the last choice of a task without."""
        left = (self.cpu_millis - ask.cpu_millis) / max(1, self.node.cpu_millis)
        left += (self.memory_mib - ask.memory_mib) / max(1, self.node.memory_mib)
        if self.devices:
            free = sum(device.free_mib for device in self.devices) / sum(device.total_mib for device in self.devices)
            left += free if ask.gpus else 1 + free
        return left


class Candidate(NamedTuple):
    """A node that could take it. The smallest is the best: the tightest GPUs, then the tightest node."""

    waste_mib: int
    leftover: float
    node: str
    version: int  # of the node's room, where that is counted
    placement: Placement


def candidate_on(room: Room, ask: Resources, overcommit: bool = False, version: int = 0) -> Candidate | None:
    placement = room.place(ask, overcommit)
    if placement is None:
        return None
    waste_mib = room.waste_mib(placement) if ask.gpus else 0
    return Candidate(waste_mib, room.leftover(ask), room.node.id, version, placement)


def choose_node(
    rooms: Iterable[Room],
    ask: Resources,
    where: Where = ANYWHERE,
    protected: Sequence[Protected] = (),
    overcommit: bool = False,
) -> Placement | None:
    """The best node that takes it without delaying a request in `protected`."""
    best: Candidate | None = None
    for room in rooms:
        if room.node.state is not NodeState.UP or not where.allows(room.node):
            continue
        found = candidate_on(room, ask, overcommit)
        if found is None or (protected and room.hurts(found.placement, protected)):
            continue
        if best is None or found[:3] < best[:3]:
            best = found
    return best.placement if best else None
