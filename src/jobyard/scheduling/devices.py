"""GPU allocation: which GPUs of a node suit a task, and which of these can it have, whole or shared?

A task that asks for neither GPU memory nor compute has its GPUs for itself. Tasks that ask for a share are packed:
memory never adds up to more than there is, compute to no more than 100 %, or 120 % where a task allows overcommit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jobyard.model.gpu_kinds import is_of_kind
from jobyard.model.node import Device, Node
from jobyard.model.resources import DeviceSlice, Resources

PERCENT_MOST = 100
PERCENT_MOST_OVERCOMMITTED = 120  # the limit of execute_batch
_ANY_NUMBER = 1 << 30


def suits(device: Device, ask: Resources) -> bool:
    """Would it do for such a task if it were free? What is placed, explained and refused at submit, all ask this."""
    return device.memory_mib >= ask.least_device_mib and is_of_kind(ask.gpu_kind, device.name, device.profile)


@dataclass(slots=True)
class FreeDevice:
    device: Device
    free_mib: int
    percent: int = 0  # of its compute: asked by those who share it, or measured of others
    users: int = 0  # slots that have a part of it; all others together are one more
    is_whole: bool = False  # one task has all of it

    @property
    def index(self) -> int:
        return self.device.index

    @property
    def total_mib(self) -> int:
        return self.device.memory_mib

    def can_give(self, ask: Resources, overcommit: bool = False) -> bool:
        if not suits(self.device, ask):
            return False
        if not ask.shares_gpus:
            return not self.users
        if self.is_whole or self.free_mib < slice_mib(ask):
            return False
        return not ask.gpu_percent or self.percent + ask.gpu_percent <= percent_most(overcommit)

    def give(self, mib: int, ask: Resources) -> None:
        self.free_mib -= mib
        self.percent += ask.gpu_percent
        self.users += 1
        self.is_whole = self.is_whole or not ask.shares_gpus

    def take_back(self, mib: int, ask: Resources) -> None:
        self.free_mib += mib
        self.percent -= ask.gpu_percent
        self.users -= 1
        self.is_whole = self.is_whole and ask.shares_gpus


def percent_most(overcommit: bool) -> int:
    return PERCENT_MOST_OVERCOMMITTED if overcommit else PERCENT_MOST


def slice_mib(ask: Resources) -> int:
    """What a share reserves. At least 1 MiB, so that other yards see it: they compare memory only."""
    return max(1, ask.gpu_memory_mib)


def free_devices(node: Node) -> list[FreeDevice]:
    """The node's GPUs with what others leave of them. A GPU on which others use memory is never given whole."""
    foreign_mib, foreign_percent = dict(node.foreign.device_mib), dict(node.foreign.device_percent)
    found = []
    for device in node.devices:
        mib, is_whole = foreign_mib.get(device.index, 0), device.index in node.foreign.whole_devices
        free_mib = 0 if is_whole else device.memory_mib - mib
        percent = foreign_percent.get(device.index, 0)
        users = int(bool(mib or is_whole))
        found.append(FreeDevice(device, free_mib, percent, users, is_whole))
    return found


def choose_devices(
    devices: Iterable[FreeDevice], ask: Resources, overcommit: bool = False
) -> tuple[DeviceSlice, ...] | None:
    """Best fit: of the GPUs that have room those with the least left, so that large and whole ones stay free."""
    if not ask.gpus:
        return ()
    usable = sorted(
        (d for d in devices if d.can_give(ask, overcommit)), key=lambda d: (d.free_mib, -d.percent, d.index)
    )
    if len(usable) < ask.gpus:
        return None
    chosen = sorted(usable[: ask.gpus], key=lambda d: d.index)
    return tuple(DeviceSlice(d.index, slice_mib(ask) if ask.shares_gpus else d.total_mib) for d in chosen)


def gpu_instances(node: Node, ask: Resources, overcommit: bool = False) -> int:
    """How many such tasks the node's GPUs could serve at once, were they all free."""
    if not ask.gpus:
        return _ANY_NUMBER
    devices = [device for device in node.devices if suits(device, ask)]
    if not ask.shares_gpus:
        return len(devices) // ask.gpus
    by_percent = percent_most(overcommit) // ask.gpu_percent if ask.gpu_percent else _ANY_NUMBER
    parts = [min(device.memory_mib // slice_mib(ask), by_percent) for device in devices]
    instances = sum(parts) // ask.gpus
    while sum(min(part, instances) for part in parts) < instances * ask.gpus:  # one task's GPUs are different devices
        instances -= 1
    return instances
