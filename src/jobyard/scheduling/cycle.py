"""The story of one cycle: order, place, make room, explain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from jobyard.model.job import Reason
from jobyard.model.node import NodeState
from jobyard.scheduling.elasticity import choose_growth
from jobyard.scheduling.explain import why_not_now, why_not_together
from jobyard.scheduling.missing import Ask, Missing, ask_of
from jobyard.scheduling.ordering import order_requests, rank
from jobyard.scheduling.placement import Protected, Room, choose_node, matches
from jobyard.scheduling.preemption import make_room
from jobyard.scheduling.snapshot import HeldSlot, Member, Opening, Plan, Request, Snapshot, StopOrder, Wait


def plan(snapshot: Snapshot) -> Plan:
    """Decide what to open now. Pure: the same snapshot gives the same plan.

    A request that cannot be met protects what it still lacks: no later one may take it (backfill never delays).
    """
    # 1. What is free.
    cycle = _Cycle(snapshot)
    # 2. In order, place what fits beside those who come first. Who does not fit waits, says why, and keeps its place.
    #    When all of one priority had their turn, elastic jobs that start now take more of what is left.
    for request in order_requests(snapshot.requests):
        if cycle.elastic and cycle.elastic[-1].request.priority > request.priority:
            cycle.enlarge()
        cycle.place(request)
    cycle.enlarge()
    # 3. Running jobs that can come back later make room for who waits, or take what nobody waits for.
    stops: tuple[StopOrder, ...] = ()
    if snapshot.running:
        made = make_room(cycle.rooms, snapshot, cycle.missing)
        stops = made.stops or choose_growth(cycle.rooms, snapshot, cycle.missing)
        for job, note in made.notes.items():
            cycle.waits[job] = Wait(cycle.waits[job].reason, f"{cycle.waits[job].sentence}; {note}")
    # 4. Slots of later jobs whose room an earlier job waits for take no new tasks.
    yielding = _choose_yielding(cycle.rooms, snapshot.held, cycle.missing) if cycle.missing else frozenset()
    return Plan(tuple(cycle.openings), yielding, cycle.waits, stops)


class _Begun(NamedTuple):
    """An elastic request that starts now, and what it has so far."""

    request: Request
    openings: list[Opening]


class _Cycle:
    def __init__(self, snapshot: Snapshot) -> None:
        self.rooms = {node.id: Room(node) for node in snapshot.nodes}
        for placement in chain((held.slot.placement for held in snapshot.held), snapshot.claims):
            if placement.node in self.rooms:
                self.rooms[placement.node].give(placement)
        self.awaited = snapshot.awaited
        self.openings: list[Opening] = []
        self.elastic: list[_Begun] = []  # of the priority whose turn it is
        self.missing: list[Missing] = []
        self.waits: dict[str, Wait] = {}
        self._wanted: Counter[Ask] = Counter()  # what blocked requests lack, and nobody else may take
        self._ahead = ""  # the first request that was blocked
        # Room only shrinks during a cycle, so an ask that was refused once is refused again, for the same reason.
        self._refused: dict[Ask, Wait] = {}

    def place(self, request: Request) -> None:
        """Open what there is room for; of an elastic request its smallest size, until all others had their turn."""
        openings: list[Opening] = []
        missing: list[Missing] = []
        refused_before = len(self._refused)
        members = request.smaller[-1] if request.smaller else request.members
        for member in members:
            found = self._open(request, member)
            openings += found
            if len(found) < member.wanted:
                missing.append(Missing(request, member, member.wanted - len(found)))
        if missing:
            self.waits[request.job] = self._refused[missing[0].ask]
        if missing and (request.gang or request.smaller):  # all or nothing
            self._take_back(openings)
            # What was refused beside the rest of the gang may fit alone.
            while openings and len(self._refused) > refused_before:
                self._refused.popitem()
            if len(openings) and self.waits[request.job].reason is not Reason.PRIORITY:
                self.waits[request.job] = why_not_together(len(openings), sum(m.wanted for m in members))
            openings, missing = [], [Missing(request, member, member.wanted) for member in members]
        if request.smaller and not missing:
            self.elastic.append(_Begun(request, openings))
        else:
            self.openings += openings
        self._keep_place(request, missing)

    def enlarge(self) -> None:
        """What is left goes to those elastic requests that start now: in turns, one size up at a time."""
        growing = [(begun, list((begun.request.members, *begun.request.smaller)[:-1])) for begun in self.elastic]
        while growing:
            turn, growing = growing, []
            for begun, sizes in turn:
                is_alone = len(turn) == 1
                while sizes:
                    members = sizes.pop(0 if is_alone else -1)
                    if self._exchange(begun, members):
                        growing += [] if is_alone else [(begun, sizes)]
                        break
        for begun in self.elastic:
            self.openings += begun.openings
        self.elastic = []

    def _exchange(self, begun: _Begun, members: tuple[Member, ...]) -> bool:
        """Give it this size instead of what it has, if there is room for all of it."""
        self._take_back(begun.openings)
        larger: list[Opening] = []
        for member in members:
            larger += self._find(begun.request, member)
        if len(larger) == sum(member.wanted for member in members):
            begun.openings[:] = larger
            return True
        self._take_back(larger)
        for opening in begun.openings:
            self.rooms[opening.placement.node].give(opening.placement)
        return False

    def _take_back(self, openings: Iterable[Opening]) -> None:
        for opening in openings:
            self.rooms[opening.placement.node].take_back(opening.placement)

    def _open(self, request: Request, member: Member) -> list[Opening]:
        """As many of the member's slots as there is room for."""
        ask = ask_of(request, member)
        if ask in self._refused:
            return []
        openings = self._find(request, member)
        if len(openings) < member.wanted:
            rooms = list(self.rooms.values())
            self._refused[ask] = why_not_now(rooms, *ask, ahead=self._ahead, awaited=self.awaited)
        return openings

    def _find(self, request: Request, member: Member) -> list[Opening]:
        openings: list[Opening] = []
        ask = ask_of(request, member)
        protected = [
            Protected(each.resources, wanted, each.on, each.overcommit) for each, wanted in self._wanted.items()
        ]
        rooms = self.rooms.values()
        while len(openings) < member.wanted:
            placement = choose_node(rooms, ask.resources, ask.on, protected, ask.overcommit)
            if placement is None:
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
