"""A small language for snapshots of training jobs: who runs where, who waits, what was decided."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobyard.model.node import Node
from jobyard.model.resources import DeviceSlice, Placement, Resources
from jobyard.model.task import Slot
from jobyard.model.training import Size
from jobyard.scheduling.cycle import plan
from jobyard.scheduling.snapshot import HeldSlot, Member, Plan, Request, Running, Snapshot
from tests.builders import a_node


def ask(cpus: float = 1, mem: int = 0, gpus: int = 0, gpu_mem: int = 0) -> Resources:
    return Resources(int(cpus * 1000), mem, gpus, gpu_mem)


def gpu_range(least: int, most: int, workers: int = 1) -> tuple[Size, ...]:
    return tuple(Size(workers, gpus) for gpus in range(least, most + 1))


def worker_range(least: int, most: int, gpus: int = 1) -> tuple[Size, ...]:
    return tuple(Size(workers, gpus) for workers in range(least, most + 1))


def wants(job: str, age: int, gpus: int = 1, workers: int = 1, priority: int = 0, **other: Any) -> Request:
    """A job of `workers` tasks with so many GPUs each; several start together."""
    member = Member(0, ask(gpus=gpus), workers)
    return Request(job, priority, age, (member,), gang=workers > 1, **other)


def wants_any(job: str, age: int, *sizes: Size, priority: int = 0, **other: Any) -> Request:
    """An elastic job; sizes smallest first."""
    largest, *smaller = ((Member(0, ask(gpus=size.gpus), size.workers),) for size in reversed(sizes))
    return Request(job, priority, age, largest, sizes[-1].workers > 1, smaller=tuple(smaller), **other)


class Yard:
    """Collects who runs; `plan` answers for some requests. GPUs are given out in order, or as `devices` says."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = nodes
        self.held: list[HeldSlot] = []
        self.running: list[Running] = []
        self.claims: list[Placement] = []
        self._next = {node.id: 0 for node in nodes}

    def runs(
        self,
        job: str,
        age: int,
        *nodes: str,
        gpus: int = 1,
        priority: int = 0,
        can_yield: bool = True,
        resources: Resources | None = None,
        devices: tuple[int, ...] | None = None,
        **other: Any,
    ) -> None:
        """One slot on each of these nodes (default: one on the first)."""
        slots = []
        for node_id in nodes or (self.nodes[0].id,):
            node = next(each for each in self.nodes if each.id == node_id)
            first = self._next[node_id]
            chosen = devices if devices is not None else tuple(range(first, first + gpus))
            self._next[node_id] += gpus if devices is None else 0
            own = resources or ask(gpus=gpus)
            pieces = tuple(DeviceSlice(i, own.gpu_memory_mib or node.devices[i].memory_mib) for i in chosen)
            slots.append(Slot(str(len(self.held) + 1), job, 0, Placement(node_id, own, pieces)))
            self.held.append(HeldSlot(slots[-1], priority, age))
        if can_yield:
            size = Size(len(slots), slots[0].placement.resources.gpus)
            self.running.append(Running(job, priority, age, tuple(slot.id for slot in slots), size, **other))

    def snapshot(self, *requests: Request) -> Snapshot:
        claims = tuple(self.claims)
        return Snapshot(self.nodes, tuple(self.held), requests, running=tuple(self.running), claims=claims)

    def plan(self, *requests: Request) -> Plan:
        return plan(self.snapshot(*requests))

    def obey(self, found: Plan) -> None:
        """The next snapshot: what was ordered to stop is stopping, and what is to grow has its claim."""
        asked = {stop.job: stop for stop in found.stops}
        self.running = [
            replace(each, is_stopping=True, stops_for=stop.stops_for, becomes=stop.size)
            if (stop := asked.get(each.job))
            else each
            for each in self.running
        ]
        self.claims += [placement for stop in found.stops for placement in stop.claim]


def stopped(found: Plan) -> list[str]:
    return [stop.job for stop in found.stops]


def a_yard(*gpus: int) -> Yard:
    """A node for each number of GPUs."""
    return Yard(*(a_node(f"n{i}", cpus=64, gpus=number) for i, number in enumerate(gpus, 1)))


def planned(nodes: list[Node], *requests: Request, held: tuple[HeldSlot, ...] = ()) -> Plan:
    return plan(Snapshot(tuple(nodes), held, requests))
