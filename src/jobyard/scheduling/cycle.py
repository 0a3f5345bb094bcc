"""Scheduling cycle: which jobs start now? In order: place (with backfill), preempt, grow, explain.

It looks at a shape, not at each request: once a request finds no room, neither does a later one of its shape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from jobyard.model.job import Reason
from jobyard.model.node import cluster_of
from jobyard.model.resources import Placement
from jobyard.scheduling.blocked import Blocked, all_of
from jobyard.scheduling.draining import choose_draining, choose_draining_for_quota
from jobyard.scheduling.elasticity import choose_growth
from jobyard.scheduling.explain import why_not_now, why_not_together
from jobyard.scheduling.line import Alike, Line, Shape, line_of
from jobyard.scheduling.missing import Ask, Missing, ask_of
from jobyard.scheduling.ordering import Position, end_of
from jobyard.scheduling.placement import Protected
from jobyard.scheduling.preemption import make_room
from jobyard.scheduling.quota_room import make_quota_room
from jobyard.scheduling.quotas import Allowance, amounts_of
from jobyard.scheduling.rooms import KnownRooms
from jobyard.scheduling.snapshot import CheckpointStop, Member, Opening, Plan, Request, Snapshot, Wait
from jobyard.scheduling.waits import Waits
from jobyard.scheduling.where import schedulable


def plan(snapshot: Snapshot, known: KnownRooms | None = None) -> Plan:
    """Decide what to open now. Pure: the same snapshot gives the same plan, sooner with what is `known` of the last.

    A request that does not fit protects what it still lacks: no later one may take it (backfill never delays it).
    """
    # 1. What is free.
    line = line_of(snapshot.requests)
    cycle = _Cycle(snapshot, line, known or KnownRooms())
    # 2. In order, place what fits without delaying earlier jobs (backfill). What does not fit waits, with a reason.
    #    After all jobs of one priority, elastic jobs that start now take more of what is left.
    cycle.place_all()
    waits = Waits(line, cycle.waits, cycle.refused_shapes())
    # 3. Preemption: running jobs that can restart make room for waiting ones. Or they grow into what no job waits for.
    stops: tuple[CheckpointStop, ...] = ()
    if snapshot.running:
        rooms = cycle.rooms.by_node
        made = make_room(rooms, snapshot, cycle.missing)
        of_quota = make_quota_room(rooms, snapshot, cycle.over_quota, cycle.allowances, made.stops)
        stops = made.stops + of_quota.stops
        stops = stops or choose_growth(rooms, snapshot, cycle.missing, cycle.allowances)
        waits.note(made.notes | of_quota.notes)
    # 4. Draining: slots of later jobs take no new tasks where an earlier job waits for their room.
    draining = choose_draining(cycle.rooms.by_node, snapshot.held, cycle.missing) if cycle.missing else frozenset()
    if cycle.over_quota:
        draining |= choose_draining_for_quota(cycle.allowances, snapshot.held, cycle.over_quota)
    return Plan(tuple(cycle.openings), draining, waits, stops)


class _Refused:
    """The rest of a shape of which no more gets anything in this cycle."""

    __slots__ = ("alike", "first", "next", "wait")

    def __init__(self, alike: Alike, first: int, wait: Wait) -> None:
        self.alike = alike
        self.first = self.next = first  # where it begins, and the first whose room is not kept yet
        self.wait = wait


class _Begun(NamedTuple):
    """An elastic request that starts now, and what it has so far."""

    request: Request
    openings: list[Opening]


class _Cycle:
    def __init__(self, snapshot: Snapshot, line: Line, known: KnownRooms) -> None:
        placements = [*(held.slot.placement for held in snapshot.held), *snapshot.claims]
        nodes = schedulable(snapshot.nodes)
        self._known = known
        self.rooms = known.of(nodes, placements, snapshot.unreached)
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
        self.missing = Blocked(line)
        self.over_quota = Blocked(line)  # what a quota keeps out, not the nodes
        self.waits: dict[str, Wait] = {}
        self._line = line
        self._rests: defaultdict[str, list[_Refused]] = defaultdict(list)  # by cluster
        self._wanted: Counter[Ask] = Counter()  # what blocked requests lack: later jobs may not take it
        self._ahead = ""  # the first request that was blocked
        # Room only shrinks during a cycle, so an ask that was refused once is refused again, for the same reason.
        self._refused: dict[Ask, Wait] = {}
        self._refused_together: dict[tuple[tuple[Ask, int], ...], Wait] = {}

    def place_all(self) -> None:
        """In order. Each step takes the first request of those shapes of which none was refused."""
        heads = [(alike.positions[0], number, 0, alike) for number, alike in enumerate(self._line.shapes)]
        heapify(heads)
        while heads:
            position, number, index, alike = heads[0]
            request = alike.requests[index]
            if self.elastic and self.elastic[-1].request.priority > request.priority:
                self._enlarge()
            if request.cluster in self.allowances or self._may_fit(request):
                self._pass_over(self._rests[request.cluster], position)
            refused = self._place(request)
            if refused is not None:
                self._rests[request.cluster].append(_Refused(alike, index + 1, refused))
            if refused is None and index + 1 < len(alike.requests):
                heapreplace(heads, (alike.positions[index + 1], number, index + 1, alike))
            else:
                heappop(heads)
        if self.elastic:
            self._enlarge()
        for rests in self._rests.values():
            self._pass_over(rests)

    def _may_fit(self, request: Request) -> bool:
        """Is there a node for any of it, if nothing were kept for others? If not, who is before it does not matter."""
        asks = (ask_of(request, member) for member in request.least)
        return any(ask not in self._refused and self.rooms.fit(ask) for ask in asks)

    def refused_shapes(self) -> dict[Shape, tuple[Position, Wait]]:
        """From which position on all of them wait, and why."""
        rests = (rest for rests in self._rests.values() for rest in rests if rest.first < len(rest.alike.positions))
        return {rest.alike.shape: (rest.alike.positions[rest.first], rest.wait) for rest in rests}

    def _pass_over(self, rests: Iterable[_Refused], before: tuple[int, ...] | None = None) -> None:
        """Requests that get nothing, up to this position: what they want is kept from the later ones."""
        for rest in rests:
            positions, begin = rest.alike.positions, rest.next
            end = len(positions) if before is None else bisect_left(positions, before, begin)
            if end > begin:
                rest.next = end
                first = rest.alike.requests[begin]
                blocked = self._keep_place(first, all_of(first), rest.wait.reason, end - begin)
                if blocked is not None:
                    blocked.add_part(rest.alike, begin, end)

    def _place(self, request: Request) -> Wait | None:
        """Open what there is room for; an elastic request gets its smallest size first, until all others were tried.

        Answers why no later request of its shape gets anything; None: one may.
        """
        openings: list[Opening] = []
        missing: list[Missing] = []
        refused_before = len(self._refused)
        members = request.least
        if request.is_together and (wait := self._why_refused_together(request)):
            self.waits[request.job] = wait
            self._block(request, all_of(request), wait.reason)
            return wait
        for member in members:
            found = self._open(request, member)
            openings += found
            if len(found) < member.wanted:
                missing.append(Missing(request, member, member.wanted - len(found)))
        if missing:
            self.waits[request.job] = self._refused[missing[0].ask]
        if missing and request.is_together:  # all or nothing
            self._take_back(openings)
            # What did not fit beside the rest of the gang may fit alone.
            while openings and len(self._refused) > refused_before:
                self._refused.popitem()
            if len(openings) and self.waits[request.job].reason is not Reason.PRIORITY:
                self.waits[request.job] = why_not_together(len(openings), sum(m.wanted for m in members))
            openings, missing = [], all_of(request)
            self._refused_together[_together(missing)] = self.waits[request.job]
        if request.smaller and not missing:
            self.elastic.append(_Begun(request, openings))
        else:
            self.openings += openings
        if not missing:
            return None
        self._block(request, missing, self.waits[request.job].reason)
        return self._why_no_more(request)

    def _block(self, request: Request, missing: list[Missing], reason: Reason) -> None:
        if (blocked := self._keep_place(request, missing, reason)) is not None:
            blocked.add(missing)

    def _why_refused_together(self, request: Request) -> Wait | None:
        """A quick check: is it certain that not all of it fits?"""
        together = _together(all_of(request))
        if wait := self._refused_together.get(together):
            return wait
        allowance = self.allowances.get(request.cluster)
        amounts = amounts_of((member.resources, member.wanted) for member in request.least)
        if allowance is None or allowance.allows(amounts):
            return None
        wait = self._refused_together[together] = allowance.why_not(amounts)
        return wait

    def _why_no_more(self, request: Request) -> Wait | None:
        """It lacks something: why would one that wants the same get nothing at all? None: it may get something."""
        if request.is_together:
            return self._refused_together[_together(all_of(request))]
        waits = [self._refused.get(ask_of(request, member)) for member in request.members]
        return None if None in waits else waits[0]

    def _enlarge(self) -> None:
        """What is left goes to the elastic requests that start now, all of one priority: round robin, one size up at a
        time."""
        for rests in self._rests.values():
            self._pass_over(rests, end_of(self.elastic[-1].request.priority))
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
        if not self.rooms.are_untouched:
            return self._explained(ask)
        return self._known.refusal(ask, self._ahead, lambda: self._explained(ask))

    def _explained(self, ask: Ask) -> Wait:
        rooms = list(self.rooms.by_node.values())
        return why_not_now(rooms, *ask, ahead=self._ahead, unreached=self.unreached)

    def _find(self, request: Request, member: Member) -> list[Opening]:
        openings: list[Opening] = []
        ask = ask_of(request, member)
        if not self.rooms.fit(ask):
            return openings
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

    def _keep_place(
        self, request: Request, missing: list[Missing], reason: Reason, requests: int = 1
    ) -> Blocked | None:
        """For it, and as many in all that lack the same. Answers where they belong, if anything is done for them."""
        where = self.missing if reason is Reason.NEVER_FITS else self._keep_quota(request, missing, requests)
        if where is self.missing:
            self._ahead = self._ahead or request.called
            for each in missing:
                self._wanted[each.ask] += each.lacking * requests
        return where

    def _keep_quota(self, request: Request, missing: list[Missing], requests: int) -> Blocked | None:
        """Do they wait for nodes or for the quota? A job that wants more than the whole quota blocks no other job."""
        allowance = self.allowances.get(request.cluster)
        if allowance is None:
            return self.missing
        lacking = amounts_of((each.member.resources, each.lacking) for each in missing)
        least = lacking if request.is_together else amounts_of([(missing[0].member.resources, 1)])
        if allowance.could_ever(least):
            allowance.keep(lacking, request.called, requests)
            return self.over_quota if allowance.lacking(least) else self.missing
        return None if allowance.lacking(least) else self.missing


def _together(missing: list[Missing]) -> tuple[tuple[Ask, int], ...]:
    return tuple((each.ask, each.lacking) for each in missing)
