"""What is a machine, and what does it have?"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class NodeState(StrEnum):
    UP = "UP"
    DRAINING = "DRAINING"  # runs what it has, takes nothing new
    DOWN = "DOWN"


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU. A fake one is simulated and must be shown as such wherever it appears."""

    index: int
    name: str
    memory_mib: int
    uuid: str = ""
    fake: bool = False


@dataclass(frozen=True, slots=True)
class Foreign:
    """What others hold on a node: processes that are not ours, and other yards' reservations."""

    cpu_millis: int = 0
    memory_mib: int = 0
    device_mib: tuple[tuple[int, int], ...] = ()  # (device index, MiB)
    whole_devices: tuple[int, ...] = ()  # reserved whole by another yard, whatever their memory shows
    holders: tuple[str, ...] = ()  # for people: "yard of bob", "python (pid 4711)"


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    executor: str
    cpu_millis: int
    memory_mib: int
    devices: tuple[Device, ...] = ()
    labels: tuple[str, ...] = ()
    boot_id: str = ""
    state: NodeState = NodeState.UP
    foreign: Foreign = field(default_factory=Foreign)
