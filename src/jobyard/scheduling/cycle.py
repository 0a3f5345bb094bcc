"""The story of one cycle: order, place, make room, explain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from jobyard.model.job import Reason
from jobyard.model.node import NodeState
from jobyard.model.resources import Resources
from jobyard.scheduling.explain import why_not_now, why_not_together
from jobyard.scheduling.ordering import order_requests, rank
from jobyard.scheduling.placement import Protected, Room, choose_node, matches
from jobyard.scheduling.snapshot import HeldSlot, Member, Opening, Plan, Request, Snapshot, Wait


class Missing(NamedTuple):
    """A request did not get `lacking` slots of this member."""

    request: Request
    member: Member
    lacking: int


def plan(snapshot: Snapshot) -> Plan:
    """Decide what to open now. Pure: the same snapshot gives the same plan.

    A request that cannot be met protects what it still lacks: no later one may take it (backfill never delays).
    """
    # 1. What is free.
    cycle = _Cycle(snapshot)
    # 2. In order, place what fits beside those who come first. Who does not fit waits, says why, and keeps its place.
    for request in order_requests(snapshot.requests):
        cycle.place(request)
    # 3. Slots of later jobs whose room an earlier job waits for take no new tasks.
    yielding = _choose_yielding(cycle.rooms, snapshot.held, cycle.missing) if cycle.missing else frozenset()
    return Plan(tuple(cycle.openings), yielding, cycle.waits)


class _Cycle:
    def __init__(self, snapshot: Snapshot) -> None:
        self.rooms = {node.id: Room(node) for node in snapshot.nodes}
        for held in snapshot.held:
            if held.slot.placement.node in self.rooms:
                self.rooms[held.slot.placement.node].give(held.slot.placement)
        self.openings: list[Opening] = []
        self.missing: list[Missing] = []
        self.waits: dict[str, Wait] = {}
        self._wanted: Counter[tuple[Resources, str]] = Counter()  # what blocked requests lack, and nobody else may take
        self._ahead = ""  # the first request that was blocked
        # Room only shrinks during a cycle, so an ask that was refused once is refused again, for the same reason.
        self._refused: dict[tuple[Resources, str], Wait] = {}

    def place(self, request: Request) -> None:
        openings: list[Opening] = []
        missing: list[Missing] = []
        refused_before = len(self._refused)
        for member in request.members:
            found = self._open(request, member)
            openings += found
            if len(found) < member.wanted:
                missing.append(Missing(request, member, member.wanted - len(found)))
        if missing:
            self.waits[request.job] = self._refused[(missing[0].member.resources, request.on)]
        if missing and request.gang:  # all or nothing
            for opening in openings:
                self.rooms[opening.placement.node].take_back(opening.placement)
            while len(self._refused) > refused_before:  # refused beside the rest of the gang; alone it may fit
                self._refused.popitem()
            if len(openings) and self.waits[request.job].reason is not Reason.PRIORITY:
                self.waits[request.job] = why_not_together(len(openings), sum(m.wanted for m in request.members))
            openings, missing = [], [Missing(request, member, member.wanted) for member in request.members]
        self.openings += openings
        self._keep_place(request, missing)

    def _open(self, request: Request, member: Member) -> list[Opening]:
        """As many of the member's slots as there is room for."""
        openings: list[Opening] = []
        key = (member.resources, request.on)
        if key in self._refused:
            return []
        protected = [Protected(resources, wanted, on) for (resources, on), wanted in self._wanted.items()]
        while len(openings) < member.wanted:
            placement = choose_node(self.rooms.values(), *key, protected)
            if placement is None:
                self._refused[key] = why_not_now(list(self.rooms.values()), *key, self._ahead)
                break
            self.rooms[placement.node].give(placement)
            openings.append(Opening(request.job, member.group, placement, member.replica))
        return openings

    def _keep_place(self, request: Request, missing: list[Missing]) -> None:
        if not missing:
            return
        self._ahead = self._ahead or request.job
        self.missing += missing
        for _, member, lacking in missing:
            self._wanted[(member.resources, request.on)] += lacking


def _choose_yielding(rooms: dict[str, Room], held: tuple[HeldSlot, ...], missing: list[Missing]) -> frozenset[str]:
    """Few slots, last in order first, whose end would let the blocked requests in.

    Where no number of later slots makes enough room, all that hold some of it yield: the rest comes from earlier jobs.
    """
    yielding: set[str] = set()
    left = sorted(held, key=rank, reverse=True)
    for request, member, lacking in missing:
        left = [item for item in left if item.slot.id not in yielding and rank(item) > rank(request)]
        if not left:
            break  # nobody who comes after it, or after those behind it, has anything
        usable = [
            room
            for room in rooms.values()
            if room.node.state is NodeState.UP and matches(room.node, request.on) and room.instances(member.resources)
        ]
        later = {room.node.id: [item for item in left if item.slot.placement.node == room.node.id] for room in usable}
        options = {room.node.id: _fewest(room, later[room.node.id], member.resources) for room in usable}
        while lacking and (found := [(len(items), name) for name, items in options.items() if items is not None]):
            name = min(found)[1]
            yielding |= _end(rooms[name], options[name] or [])
            if placement := rooms[name].place(member.resources):
                rooms[name].give(placement)
            lacking -= 1
            later[name] = [item for item in later[name] if item.slot.id not in yielding]
            options[name] = _fewest(rooms[name], later[name], member.resources)
        if lacking:
            for room in usable:
                for item in later[room.node.id]:
                    if _helps(room, item, member.resources):
                        yielding |= _end(room, [item])
    return frozenset(yielding)


def _fewest(room: Room, later: list[HeldSlot], ask: Resources) -> list[HeldSlot] | None:
    """Slots whose end would make room for one such task; None where all of them are not enough."""
    trial, chosen = room.copy(), []
    for item in later:
        if trial.place(ask):
            break
        if _helps(trial, item, ask):
            trial.take_back(item.slot.placement)
            chosen.append(item)
    if not trial.place(ask):
        return None
    for item in list(chosen):  # an early choice may be superfluous beside a late one
        trial.give(item.slot.placement)
        if trial.place(ask):
            chosen.remove(item)
        else:
            trial.take_back(item.slot.placement)
    return chosen


def _end(room: Room, items: Iterable[HeldSlot]) -> set[str]:
    for item in items:
        room.take_back(item.slot.placement)
    return {item.slot.id for item in items}


def _helps(room: Room, item: HeldSlot, ask: Resources) -> bool:
    """Does it give back anything that the ask lacks?"""
    back = item.slot.placement.resources
    return bool(
        (room.cpu_millis < ask.cpu_millis and back.cpu_millis)
        or (room.memory_mib < ask.memory_mib and back.memory_mib)
        or (ask.gpus and item.slot.placement.devices and room.choose_devices(ask) is None)
    )
