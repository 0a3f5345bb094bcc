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


class Ask(NamedTuple):
    """What one slot of a member needs; two with the same ask are refused for the same reason."""

    resources: Resources
    on: str
    overcommit: bool


class Missing(NamedTuple):
    """A request did not get `lacking` slots of this member."""

    request: Request
    member: Member
    lacking: int

    @property
    def ask(self) -> Ask:
        return ask_of(self.request, self.member)


def ask_of(request: Request, member: Member) -> Ask:
    return Ask(member.resources, request.on, request.overcommit)


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
        self.awaited = snapshot.awaited
        self.openings: list[Opening] = []
        self.missing: list[Missing] = []
        self.waits: dict[str, Wait] = {}
        self._wanted: Counter[Ask] = Counter()  # what blocked requests lack, and nobody else may take
        self._ahead = ""  # the first request that was blocked
        # Room only shrinks during a cycle, so an ask that was refused once is refused again, for the same reason.
        self._refused: dict[Ask, Wait] = {}

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
            self.waits[request.job] = self._refused[missing[0].ask]
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
        ask = ask_of(request, member)
        if ask in self._refused:
            return []
        protected = [
            Protected(each.resources, wanted, each.on, each.overcommit) for each, wanted in self._wanted.items()
        ]
        rooms = self.rooms.values()
        while len(openings) < member.wanted:
            placement = choose_node(rooms, ask.resources, ask.on, protected, ask.overcommit)
            if placement is None:
                self._refused[ask] = why_not_now(list(rooms), *ask, ahead=self._ahead, awaited=self.awaited)
                break
            self.rooms[placement.node].give(placement)
            openings.append(Opening(request.job, member.group, placement, member.replica))
        return openings

    def _keep_place(self, request: Request, missing: list[Missing]) -> None:
        if not missing:
            return
        self._ahead = self._ahead or request.job
        self.missing += missing
        for each in missing:
            self._wanted[each.ask] += each.lacking


def _choose_yielding(rooms: dict[str, Room], held: tuple[HeldSlot, ...], missing: list[Missing]) -> frozenset[str]:
    """Few slots, last in order first, whose end would let the blocked requests in.

    Where no number of later slots makes enough room, all that hold some of it yield: the rest comes from earlier jobs.
    """
    yielding: set[str] = set()
    left = sorted(held, key=rank, reverse=True)
    for each in missing:
        request, lacking, ask = each.request, each.lacking, each.ask
        left = [item for item in left if item.slot.id not in yielding and rank(item) > rank(request)]
        if not left:
            break  # nobody who comes after it, or after those behind it, has anything
        usable = [
            room
            for room in rooms.values()
            if room.node.state is NodeState.UP
            and matches(room.node, ask.on)
            and room.instances(ask.resources, ask.overcommit)
        ]
        later = {room.node.id: [item for item in left if item.slot.placement.node == room.node.id] for room in usable}
        options = {room.node.id: _fewest(room, later[room.node.id], ask) for room in usable}
        while lacking and (found := [(len(items), name) for name, items in options.items() if items is not None]):
            name = min(found)[1]
            yielding |= _end(rooms[name], options[name] or [])
            if placement := rooms[name].place(ask.resources, ask.overcommit):
                rooms[name].give(placement)
            lacking -= 1
            later[name] = [item for item in later[name] if item.slot.id not in yielding]
            options[name] = _fewest(rooms[name], later[name], ask)
        if lacking:
            for room in usable:
                for item in later[room.node.id]:
                    if _helps(room, item, ask):
                        yielding |= _end(room, [item])
    return frozenset(yielding)


def _fewest(room: Room, later: list[HeldSlot], ask: Ask) -> list[HeldSlot] | None:
    """Slots whose end would make room for one such task; None where all of them are not enough."""
    trial, chosen = room.copy(), []
    for item in later:
        if trial.place(ask.resources, ask.overcommit):
            break
        if _helps(trial, item, ask):
            trial.take_back(item.slot.placement)
            chosen.append(item)
    if not trial.place(ask.resources, ask.overcommit):
        return None
    for item in list(chosen):  # an early choice may be superfluous beside a late one
        trial.give(item.slot.placement)
        if trial.place(ask.resources, ask.overcommit):
            chosen.remove(item)
        else:
            trial.take_back(item.slot.placement)
    return chosen


def _end(room: Room, items: Iterable[HeldSlot]) -> set[str]:
    for item in items:
        room.take_back(item.slot.placement)
    return {item.slot.id for item in items}


def _helps(room: Room, item: HeldSlot, ask: Ask) -> bool:
    """Does it give back anything that the ask lacks?"""
    back, wanted = item.slot.placement.resources, ask.resources
    return bool(
        back.whole_node
        or wanted.whole_node
        or (room.free_cpu_millis(ask.overcommit) < wanted.cpu_millis and back.cpu_millis)
        or (room.memory_mib < wanted.memory_mib and back.memory_mib)
        or (wanted.gpus and item.slot.placement.devices and room.choose_devices(wanted, ask.overcommit) is None)
    )
