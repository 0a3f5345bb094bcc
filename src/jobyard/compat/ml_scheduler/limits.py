"""Concurrency limits: how many lines does a machine run at once, and on which GPUs? ml-scheduler's own rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobyard.compat.ml_scheduler.flags import Need
from jobyard.model.node import NodeState
from jobyard.model.resources import Resources
from jobyard.wire.views import DeviceView, NodeView

OVERLOAD_MILLIS = 2000  # two cores more than are free
PERCENT_MOST = 120
HALF_OF_MOST = PERCENT_MOST // 2 + 1  # of two that ask for so much one does not fit


@dataclass(frozen=True)
class Gpu:
    index: int
    free_mib: int
    percent: int = 0
    is_reserved: bool = False

    def has_room(self, need: Need) -> bool:
        return (
            not self.is_reserved
            and self.free_mib >= need.gpu_memory_mib
            and self.percent + need.gpu_percent <= PERCENT_MOST
        )

    def given(self, need: Need) -> Gpu:
        free_mib, percent = self.free_mib - need.gpu_memory_mib, self.percent + need.gpu_percent
        return Gpu(self.index, free_mib, percent, need.reserves_gpu)


@dataclass(frozen=True)
class Free:
    """What is free on a machine."""

    cpu_millis: int
    memory_mib: int
    gpus: tuple[Gpu, ...] = ()


NOTHING_FREE = Free(-OVERLOAD_MILLIS - 1, -1)


def filled(free: Free, need: Need, most: int) -> tuple[list[int], Free]:
    """One item for each line that fits at once: the GPU that it gets, 0 where it needs none. At most `most` items.

    And what is then left of the machine, for another file that means the same host.

    The idlest GPU that can take the line is chosen, the first of several.
    """
    chosen: list[int] = []
    while len(chosen) < (1 if need.reserves_machine else most):
        left = replace(
            free,
            cpu_millis=free.cpu_millis - 1000 * need.cpus,
            memory_mib=free.memory_mib - need.memory_mib,
        )
        if left.cpu_millis < -OVERLOAD_MILLIS or left.memory_mib < 0:
            break
        if need.is_gpu_required:
            usable = [gpu for gpu in left.gpus if gpu.has_room(need)]
            if not usable:
                break
            best = min(usable, key=lambda gpu: (gpu.percent, gpu.index))
            left = replace(left, gpus=tuple(gpu.given(need) if gpu is best else gpu for gpu in left.gpus))
            chosen.append(best.index)
        else:
            chosen.append(0)
        free = left
    return chosen, NOTHING_FREE if chosen and need.reserves_machine else free


def free_of(view: NodeView) -> Free:
    """What the yard could give there now. A machine without a link has nothing."""
    if view.state is not NodeState.UP:
        return NOTHING_FREE
    return Free(
        view.cpu_millis - view.cpu_millis_reserved - view.cpu_millis_foreign,
        view.memory_mib - view.memory_mib_reserved - view.memory_mib_foreign,
        tuple(map(_gpu, view.devices)),
    )


def _gpu(device: DeviceView) -> Gpu:
    free_mib = device.memory_mib - device.reserved_mib - device.foreign_mib
    # What tasks asked for counts from their start, what is measured only once they compute.
    asked = device.reserved_percent + device.foreign_percent
    return Gpu(device.index, free_mib, max(asked, device.percent or 0), is_reserved=free_mib <= 0)


def resources_of(need: Need, nodes: Sequence[NodeView]) -> Resources:
    """What a line asks of the yard.

    A reserved GPU is a whole one. Where some GPU is too small for the line or partly used by others (an execute_remote
    sees it, say), only asking for memory tells them apart; more than half of the compute then keeps a second line away.
    """
    asked = Resources(1000 * need.cpus, need.memory_mib, whole_node=need.reserves_machine)
    if not need.is_gpu_required:
        return asked
    if need.reserves_machine:
        return replace(asked, gpus=1)
    devices = [device for node in nodes for device in node.devices]
    is_plain = all(device.memory_mib >= need.gpu_memory_mib and not _is_partly_used(device) for device in devices)
    if need.reserves_gpu and is_plain:
        return replace(asked, gpus=1)
    percent = max(need.gpu_percent, HALF_OF_MOST) if need.reserves_gpu else need.gpu_percent
    return replace(asked, gpus=1, gpu_memory_mib=max(1, need.gpu_memory_mib), gpu_percent=percent)


def _is_partly_used(device: DeviceView) -> bool:
    return bool(device.foreign_mib) or 0 < device.reserved_mib < device.memory_mib
