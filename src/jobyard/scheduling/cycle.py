"""Scheduling cycle: which jobs start now? In order: place (with backfill), preempt, grow, explain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from jobyard.model.job import Reason
from jobyard.model.node import NodeState, cluster_of
from jobyard.model.resources import Placement
from jobyard.scheduling.elasticity import choose_growth
from jobyard.scheduling.explain import why_not_now, why_not_together
from jobyard.scheduling.missing import Ask, Missing, ask_of
from jobyard.scheduling.ordering import order_requests, rank
from jobyard.scheduling.placement import Protected, Room
from jobyard.scheduling.preemption import make_room
from jobyard.scheduling.quota_room import make_quota_room
from jobyard.scheduling.quotas import Allowance, amounts_of
from jobyard.scheduling.rooms import KnownRooms
from jobyard.scheduling.snapshot import CheckpointStop, HeldSlot, Member, Opening, Plan, Request, Snapshot, Wait
from jobyard.scheduling.where import schedulable


def plan(snapshot: Snapshot, known: KnownRooms | None = None) -> Plan:
    """Decide what to open now. Pure: the same snapshot gives the same plan, sooner with what is `known` of the last.

    A request that does not fit protects what it still lacks: no later one may take it (backfill never delays it).
    """
    # 1. What is free.
    cycle = _Cycle(snapshot, known or KnownRooms())
    # 2. In order, place what fits without delaying earlier jobs (backfill). What does not fit waits, with a reason.
    #    After all jobs of one priority, elastic jobs that start now take more of what is left.
    for request in order_requests(snapshot.requests):
        if cycle.elastic and cycle.elastic[-1].request.priority > request.priority:
            cycle.enlarge()
        cycle.place(request)
    cycle.enlarge()
    # 3. Preemption: running jobs that can restart make room for waiting ones. Or they grow into what no job waits for.
    stops: tuple[CheckpointStop, ...] = ()
    if snapshot.running:
        rooms = cycle.rooms.by_node
        made = make_room(rooms, snapshot, cycle.missing)
        of_quota = make_quota_room(rooms, snapshot, cycle.over_quota, cycle.allowances, made.stops)
        stops = made.stops + of_quota.stops
        stops = stops or choose_growth(rooms, snapshot, cycle.missing, cycle.allowances)
        for job, note in (made.notes | of_quota.notes).items():
            cycle.waits[job] = Wait(cycle.waits[job].reason, f"{cycle.waits[job].sentence}; {note}")
    # 4. Draining: slots of later jobs take no new tasks where an earlier job waits for their room.
    draining = _choose_draining(cycle.rooms.by_node, snapshot.held, cycle.missing) if cycle.missing else frozenset()
    if cycle.over_quota:
        draining |= _choose_draining_for_quota(cycle.allowances, snapshot.held, cycle.over_quota)
    return Plan(tuple(cycle.openings), draining, cycle.waits, stops)


class _Begun(NamedTuple):
    """An elastic request that starts now, and what it has so far."""

    request: Request
    openings: list[Opening]


class _Cycle:
    def __init__(self, snapshot: Snapshot, known: KnownRooms) -> None:
        placements = [*(held.slot.placement for held in snapshot.held), *snapshot.claims]
        nodes = schedulable(snapshot.nodes)
        self.rooms = known.of(nodes, placements)
        queued = {cluster_of(node.id) for node in nodes if node.is_queue}  # there the other scheduler checks the quota
        self.allowances = {
            cluster: Allowance(cluster, quota) for cluster, quota in snapshot.quotas.items() if cluster not in queued
        }
        for placement in placements if self.allowances else ():
            if allowance := self.allowances.get(cluster_of(placement.node)):
                allowance.give(placement.resources)
        self.unreached = snapshot.unreached
        self.openings: list[Opening] = []
        self.elastic: list[_Begun] = []  # of the current priority
        self.missing: list[Missing] = []
        self.over_quota: list[Missing] = []  # what a quota keeps out, not the nodes
        self.waits: dict[str, Wait] = {}
        self._wanted: Counter[Ask] = Counter()  # what blocked requests lack: later jobs may not take it
        self._ahead = ""  # the first request that was blocked
        # Room only shrinks during a cycle, so an ask that was refused once is refused again, for the same reason.
        self._refused: dict[Ask, Wait] = {}
        self._refused_together: dict[tuple[tuple[Ask, int], ...], Wait] = {}

    def place(self, request: Request) -> None:
        """Open what there is room for; an elastic request gets its smallest size first, until all others were tried."""
        openings: list[Opening] = []
        missing: list[Missing] = []
        refused_before = len(self._refused)
        members = request.smaller[-1] if request.smaller else request.members
        if (request.gang or request.smaller) and self._is_refused_together(request, members):
            return
        for member in members:
            found = self._open(request, member)
            openings += found
            if len(found) < member.wanted:
                missing.append(Missing(request, member, member.wanted - len(found)))
        if missing:
            self.waits[request.job] = self._refused[missing[0].ask]
        if missing and (request.gang or request.smaller):  # all or nothing
            self._take_back(openings)
            # What did not fit beside the rest of the gang may fit alone.
            while openings and len(self._refused) > refused_before:
                self._refused.popitem()
            if len(openings) and self.waits[request.job].reason is not Reason.PRIORITY:
                self.waits[request.job] = why_not_together(len(openings), sum(m.wanted for m in members))
            openings, missing = [], [Missing(request, member, member.wanted) for member in members]
            self._refused_together[_together(missing)] = self.waits[request.job]
        if request.smaller and not missing:
            self.elastic.append(_Begun(request, openings))
        else:
            self.openings += openings
        self._keep_place(request, missing)

    def _is_refused_together(self, request: Request, members: tuple[Member, ...]) -> bool:
        """A quick check: is it certain that not all of it fits? Then it waits."""
        missing = [Missing(request, member, member.wanted) for member in members]
        allowance = self.allowances.get(request.cluster)
        amounts = amounts_of((member.resources, member.wanted) for member in members)
        if allowance is not None and not allowance.allows(amounts):
            self.waits[request.job] = allowance.why_not(amounts)
        elif wait := self._refused_together.get(_together(missing)):
            self.waits[request.job] = wait
        else:
            return False
        self._keep_place(request, missing)
        return True

    def enlarge(self) -> None:
        """What is left goes to the elastic requests that start now: round robin, one size up at a time."""
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
            self._give(opening.placement)
        return False

    def _give(self, placement: Placement) -> None:
        self.rooms.give(placement)
        if self.allowances and (allowance := self.allowances.get(cluster_of(placement.node))):
            allowance.give(placement.resources)

    def _take_back(self, openings: Iterable[Opening]) -> None:
        for opening in openings:
            placement = opening.placement
            self.rooms.take_back(placement)
            if self.allowances and (allowance := self.allowances.get(cluster_of(placement.node))):
                allowance.take_back(placement.resources)

    def _open(self, request: Request, member: Member) -> list[Opening]:
        """As many of the member's slots as there is room for."""
        ask = ask_of(request, member)
        if ask in self._refused:
            return []
        openings = self._find(request, member)
        if len(openings) < member.wanted:
            self._refused[ask] = self._why_not(ask)
        return openings

    def _why_not(self, ask: Ask) -> Wait:
        allowance, one = self.allowances.get(ask.where.cluster), amounts_of([(ask.resources, 1)])
        if allowance is not None and not allowance.allows(one):
            return allowance.why_not(one)
        rooms = list(self.rooms.by_node.values())
        return why_not_now(rooms, *ask, ahead=self._ahead, unreached=self.unreached)

    def _find(self, request: Request, member: Member) -> list[Opening]:
        openings: list[Opening] = []
        ask = ask_of(request, member)
        protected = [
            Protected(each.resources, wanted, each.where, each.overcommit)
            for each, wanted in self._wanted.items()
            if each.where.cluster == request.cluster
        ]
        allowance, one = self.allowances.get(request.cluster), amounts_of([(member.resources, 1)])
        while len(openings) < member.wanted:
            if allowance is not None and not allowance.allows(one):
                break
            placement = self.rooms.choose(ask, protected)
            if placement is None:
                break
            self._give(placement)
            openings.append(Opening(request.job, member.group, placement, member.replica))
        return openings

    def _keep_place(self, request: Request, missing: list[Missing]) -> None:
        if not missing:
            return
        if self.waits[request.job].reason is not Reason.NEVER_FITS and self._keep_quota(request, missing):
            return  # it does not wait for nodes
        self._ahead = self._ahead or request.called
        self.missing += missing
        for each in missing:
            self._wanted[each.ask] += each.lacking

    def _keep_quota(self, request: Request, missing: list[Missing]) -> bool:
        """Does it wait for the quota? A job that wants more than the whole quota blocks no other job."""
        allowance = self.allowances.get(request.cluster)
        if allowance is None:
            return False
        lacking = amounts_of((each.member.resources, each.lacking) for each in missing)
        is_together = request.gang or request.smaller
        least = lacking if is_together else amounts_of([(missing[0].member.resources, 1)])
        is_over = bool(allowance.lacking(least))
        if allowance.could_ever(least):
            allowance.keep(lacking, request.called)
            self.over_quota += missing if is_over else []
        return is_over


def _together(missing: list[Missing]) -> tuple[tuple[Ask, int], ...]:
    return tuple((each.ask, each.lacking) for each in missing)


def _choose_draining_for_quota(
    allowances: dict[str, Allowance], held: tuple[HeldSlot, ...], missing: list[Missing]
) -> frozenset[str]:
    """Slots of the same cluster, last in order first, whose end would leave enough of its quota."""
    draining: set[str] = set()
    last_first = sorted(held, key=rank, reverse=True)
    for request, items in groupby(missing, key=lambda each: each.request):
        allowance = allowances[request.cluster]
        wanted = [(each.member.resources, each.lacking) for each in items]
        amounts = amounts_of(wanted)
        for item in last_first:
            placement = item.slot.placement
            lacking = allowance.lacking(amounts)
            if not lacking or rank(item) <= rank(request):
                break
            if cluster_of(placement.node) == request.cluster and item.slot.id not in draining:
                gives = amounts_of([(placement.resources, 1)])
                if any(gives[name] for name in lacking):
                    allowance.take_back(placement.resources)
                    draining.add(item.slot.id)
        for resources, count in wanted:
            allowance.give(resources, count)
    return frozenset(draining)


def _choose_draining(rooms: dict[str, Room], held: tuple[HeldSlot, ...], missing: list[Missing]) -> frozenset[str]:
    """Few slots, last in order first, whose end would make room for the blocked requests.

    Where later slots alone cannot make enough room, all that hold some of it drain: the rest comes from earlier jobs.
    """
    draining: set[str] = set()
    rooms = dict(rooms)  # a room is copied before it is changed
    left = sorted(held, key=rank, reverse=True)
    for each in missing:
        request, lacking, ask = each.request, each.lacking, each.ask
        left = [item for item in left if item.slot.id not in draining and rank(item) > rank(request)]
        if not left:
            break  # no later job holds anything
        usable = [
            name
            for name, room in rooms.items()
            if room.node.state is NodeState.UP
            and ask.where.allows(room.node)
            and room.instances(ask.resources, ask.overcommit)
        ]
        later: dict[str, list[HeldSlot]] = {name: [] for name in usable}
        for item in left:
            if item.slot.placement.node in later:
                later[item.slot.placement.node].append(item)
        options = {name: _fewest(rooms[name], later[name], ask) for name in usable}
        while lacking and (found := [(len(items), name) for name, items in options.items() if items is not None]):
            name = min(found)[1]
            rooms[name] = rooms[name].copy()
            draining |= _end(rooms[name], options[name] or [])
            if placement := rooms[name].place(ask.resources, ask.overcommit):
                rooms[name].give(placement)
            lacking -= 1
            later[name] = [item for item in later[name] if item.slot.id not in draining]
            options[name] = _fewest(rooms[name], later[name], ask)
        if lacking:
            for name in usable:
                rooms[name] = rooms[name].copy()
                for item in later[name]:
                    if _helps(rooms[name], item, ask):
                        draining |= _end(rooms[name], [item])
    return frozenset(draining)


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
    for item in list(chosen):  # a later choice may make an earlier one unnecessary
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
