"""How much does a task ask for, and where did it get it?"""

from __future__ import annotations

from dataclasses import dataclass

from jobyard.model.units import show_cpus, show_mib


@dataclass(frozen=True, slots=True)
class Resources:
    """What one task asks for. `gpu_memory_mib` is per GPU; 0 with `gpus` > 0: whole devices, shared with nobody."""

    cpu_millis: int = 1000
    memory_mib: int = 0
    gpus: int = 0
    gpu_memory_mib: int = 0

    @property
    def shares_gpus(self) -> bool:
        return self.gpus > 0 and self.gpu_memory_mib > 0

    def __str__(self) -> str:
        parts = [f"{show_cpus(self.cpu_millis)} cpu{'' if self.cpu_millis == 1000 else 's'}"]
        if self.memory_mib:
            parts.append(f"{show_mib(self.memory_mib)} memory")
        if self.gpus:
            each = f" with {show_mib(self.gpu_memory_mib)} each" if self.gpu_memory_mib else ""
            parts.append(f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}{each}")
        return ", ".join(parts)


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
