"""Resources and placement: how much does a task ask for, and where did it get it?"""

from __future__ import annotations

from dataclasses import dataclass

from jobyard.model.limits import CpuMillis, Gpus, Line, Mib, Percent
from jobyard.model.units import show_cpus, show_mib


@dataclass(frozen=True, slots=True)
class Resources:
    """What one task asks for. With neither `gpu_memory_mib` nor `gpu_percent` its GPUs are not shared.

    With `whole_node` the amounts say how large the node must be at least; in a Placement they are all that it has.
    """

    cpu_millis: CpuMillis = 1000
    memory_mib: Mib = 0
    gpus: Gpus = 0
    gpu_memory_mib: Mib = 0  # on each GPU; the rest of it is left to others
    gpu_percent: Percent = 0  # of each GPU's compute; 0: not asked, a shared GPU is then shared by memory alone
    whole_node: bool = False  # nothing else of this yard, or of another one, beside it
    least_device_mib: Mib = 0  # no GPU that has less memory in all; 0: any
    # Is it killed when it uses more memory than it asked for? None: not said; then a container is, a process is not.
    memory_limit: bool | None = None
    gpu_kind: Line = ""  # only GPUs of this kind, as `gpu_kinds` knows them; empty: any

    @property
    def shares_gpus(self) -> bool:
        return self.gpus > 0 and (self.gpu_memory_mib > 0 or self.gpu_percent > 0)

    def __str__(self) -> str:
        parts = [f"{show_cpus(self.cpu_millis)} cpu{'' if self.cpu_millis == 1000 else 's'}"]
        if self.memory_mib:
            parts.append(f"{show_mib(self.memory_mib)} memory")
        if self.gpus:
            shares = self.gpu_share
            of = f" of at least {show_mib(self.least_device_mib)}" if self.least_device_mib else ""
            gpus = f"{f'{self.gpu_kind} ' if self.gpu_kind else ''}GPU{'s' if self.gpus > 1 else ''}"
            parts.append(f"{self.gpus} {gpus}{of}{f' with {shares} each' if shares else ''}")
        return ("a whole node with " if self.whole_node else "") + ", ".join(parts)

    @property
    def gpu_share(self) -> str:
        """For people: what it asks of each GPU; empty where it asks for all of it."""
        memory = show_mib(self.gpu_memory_mib) if self.gpu_memory_mib else ""
        return " and ".join(filter(None, (memory, f"{self.gpu_percent} % of compute" if self.gpu_percent else "")))


@dataclass(frozen=True, slots=True)
class DeviceSlice:
    """A part of one GPU: the device's index on its node and the MiB reserved there."""

    index: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Placement:
    """What an attempt was given: a node, amounts, and slices of its devices."""

    node: str
    resources: Resources
    devices: tuple[DeviceSlice, ...] = ()
