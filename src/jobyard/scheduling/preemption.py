"""Preemption: which running jobs stop or shrink for waiting ones, at the least loss?

Jobs that stop at a checkpoint make room for a request of higher priority; elastic ones shrink for any request that is
not of lower priority, and where that is enough no job stops completely. What jobs that were asked before will free
counts as free: no job is asked twice, and none without need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from jobyard.model.node import NodeState, cluster_of
from jobyard.model.resources import Placement
from jobyard.model.training import Size
from jobyard.scheduling.blocked import Blocked
from jobyard.scheduling.devices import slice_mib
from jobyard.scheduling.missing import Ask, Missing
from jobyard.scheduling.ordering import rank
from jobyard.scheduling.placement import Protected, Room
from jobyard.scheduling.snapshot import CheckpointStop, Request, Snapshot
from jobyard.scheduling.what_if import (
    Change,
    Rooms,
    after,
    as_asked,
    changes_of,
    devices,
    kept,
    loss,
    place_all,
    smaller_sizes,
    stop_for,
    who_makes_room,
)
from jobyard.scheduling.where import Where


@dataclass(slots=True)
class Made:
    stops: tuple[CheckpointStop, ...] = ()
    notes: dict[str, str] = field(default_factory=dict)  # by waiting job: which jobs make room for it


def make_room(rooms: Mapping[str, Room], snapshot: Snapshot, missing: Blocked) -> Made:
    """Which jobs to stop for the blocked requests, in their order. Does not change `rooms`.

    No job is stopped for a request that would not fit even then; what it lacks is kept from later requests.
    """
    if not missing:
        return Made()
    making = _Making(rooms, snapshot, missing)
    for request, items in groupby(missing, key=lambda each: each.request):
        if making.is_done or not making.can_help(request.priority):
            break
        making.serve(request, list(items))
    return Made(tuple(making.stops), making.notes)


class _Making:
    def __init__(self, rooms: Mapping[str, Room], snapshot: Snapshot, missing: Blocked) -> None:
        everyone = changes_of(snapshot)
        self.stops: list[CheckpointStop] = []
        self.notes: dict[str, str] = {}
        self._able = [each for each in everyone if not (each.running.is_stopping or each.running.is_last_epoch)]
        stopping = [each for each in everyone if each.running.is_stopping]
        waiting = {job for each in stopping if (job := each.running.stops_for) and missing.has(job)}
        # What will be free for all; and what will be free but was asked for by a job that still waits: it has the first
        # choice, as in the cycle that asked. Otherwise another job may take it, and one more job is preempted.
        self._coming = [each for each in stopping if each.running.stops_for not in waiting]
        self._promised = [as_asked(each) for each in stopping if each.running.stops_for in waiting]
        self._rooms = dict(rooms)
        for placement in snapshot.claims:
            if placement.node in self._rooms:
                self._own(placement.node).take_back(placement)
        self._rooms = after(self._rooms, self._coming)
        self._protected: list[Protected] = []
        self._returns: dict[str, list[Size]] = {}  # by preempted job: the sizes for which a place was searched
        self._awaited: list[Protected] = []
        self._hopeless: set[tuple[Ask, ...]] = set()  # a later request, with no higher priority, does not fit either
        self._all = {asks for items in missing.samples() for asks in _let_in_as(items)}
        self._note_candidates()

    @property
    def is_done(self) -> bool:
        """Does none of those that wait fit, whoever stops?"""
        return self._all <= self._hopeless

    def _own(self, node: str) -> Room:
        self._rooms[node] = self._rooms[node].copy()
        return self._rooms[node]

    def _note_candidates(self) -> None:
        self._lowest = min((each.running.priority for each in self._able), default=None)
        flexible = [each for each in self._able if smaller_sizes(each.running)]
        helping = (*flexible, *self._coming, *self._promised)
        self._lowest_flexible = min((each.running.priority for each in helping), default=None)

    def can_help(self, priority: int) -> bool:
        """Can any job make room for a request of this priority? If not, then not for a lower one either."""
        return (self._lowest is not None and self._lowest < priority) or (
            self._lowest_flexible is not None and self._lowest_flexible <= priority
        )

    def serve(self, request: Request, items: list[Missing]) -> None:
        self._place_preempted_jobs(request)
        self._serve(request, items)
        self._free([each for each in self._promised if each.running.stops_for == request.job])  # it needed less

    def _serve(self, request: Request, items: list[Missing]) -> None:
        if request.is_together:
            (asks,) = _let_in_as(items)
            if not self._let_in(request, asks):
                self._give_up(items)
            return
        for each in items:
            lacking = each.lacking
            while lacking and self._let_in(request, (each.ask,)):
                lacking -= 1
            if lacking:
                self._give_up([each._replace(lacking=lacking)])

    def _give_up(self, items: Iterable[Missing]) -> None:
        self._protected += [Protected(each.ask.resources, each.lacking, *each.ask[1:]) for each in items]

    def _place_preempted_jobs(self, request: Request) -> None:
        """A preempted job restarts before later jobs; an elastic one with its smallest size among jobs of its priority.

        It is placed on its node beside requests that were let in before: they may have its old GPUs by now.
        """
        for index in sorted(range(len(self._coming)), key=lambda index: rank(self._coming[index].running)):
            each = self._coming[index]
            sizes = self._sizes_on_return(each, request)
            if sizes != self._returns.get(each.running.job, []) or (sizes and not each.keeps):
                self._returns[each.running.job] = sizes
                away = Change(each.running, each.keeps)
                self._rooms = after(self._rooms, [away])
                keeps = _fitting(self._rooms, each.has, sizes)
                self._coming[index] = each._replace(keeps=keeps)
                self._rooms = after(self._rooms, [away._replace(has=(), keeps=keeps)])
        self._awaited = [
            Protected(place.resources, 1, Where(place.node, cluster_of(place.node)))
            for each in self._coming
            if not each.keeps and (least := self._returns.get(each.running.job))
            for place in kept(each.has, least[-1])
        ]

    @property
    def _kept_free(self) -> list[Protected]:
        """What earlier ones lack: requests, and preempted jobs that find no place yet."""
        return self._protected + self._awaited

    @staticmethod
    def _sizes_on_return(each: Change, request: Request) -> list[Size]:
        """The sizes that it may restart with before the request gets anything, best first."""
        running = each.running
        if running.priority == request.priority and running.sizes:
            return [running.size, *smaller_sizes(running)][-1:]
        return [running.size, *smaller_sizes(running)] if rank(running) < rank(request) else []

    def _let_in(self, request: Request, asks: tuple[Ask, ...]) -> bool:
        """Find or make room for all of these, and take it."""
        if asks in self._hopeless:
            return False
        coming = len(self._coming)
        placed = place_all(self._rooms, asks, self._kept_free) or self._place_in_promised_room(request, asks)
        if placed is None:
            changes = self._choose(request, asks)
            if not changes:
                self._hopeless.add(asks)
                return False
            self._order(request, changes)
            placed = place_all(self._rooms, asks, self._kept_free) or []
        for placement in placed:
            self._own(placement.node).give(placement)
        if len(self._coming) > coming:
            self._place_preempted_jobs(request)
        nodes = {placement.node for placement in placed}
        helpers = [c.running for c in self._coming if c.keeps != c.has and any(p.node in nodes for p in c.has)]
        if helpers and request.job not in self.notes:
            self.notes[request.job] = who_makes_room(helpers)
        return True

    def _place_in_promised_room(self, request: Request, asks: tuple[Ask, ...]) -> list[Placement] | None:
        """In the room of jobs that stop for this request; if that is not enough, for later ones."""
        own = [each for each in self._promised if each.running.stops_for == request.job]
        for options in (own, self._promised):
            if options and (needed := _needed(self._rooms, asks, options, self._kept_free)):
                self._free(needed)
                return place_all(self._rooms, asks, self._kept_free)
        return None

    def _free(self, changes: Sequence[Change]) -> None:
        """Count these as done: what they give up is free for all."""
        if changes:
            done = {each.running.job for each in changes}
            self._promised = [each for each in self._promised if each.running.job not in done]
            self._coming += changes
            self._returns |= {each.running.job: [each.size] if each.size else [] for each in changes}
            self._rooms = after(self._rooms, changes)

    def _choose(self, request: Request, asks: Sequence[Ask]) -> list[Change] | None:
        others = [each for each in self._able if each.running.job != request.job]
        flexible = [each for each in others if each.running.priority <= request.priority and each.running.sizes]
        lower = [each for each in others if each.running.priority < request.priority]
        # 1. Is it enough that elastic jobs become smaller? 2. If not, jobs of lower priority stop.
        for is_enough in (True, False):
            for node in _nodes_to_leave(flexible):
                shrunk = [
                    each._replace(keeps=kept(each.has, sizes[-1], away_from=node), size=sizes[-1])
                    for each in flexible
                    if (sizes := smaller_sizes(each.running))
                ]
                equal = [each for each in shrunk if each.running.priority == request.priority]
                options = shrunk if is_enough else lower + equal
                if options and (found := _cheapest(self._rooms, asks, options, self._kept_free)):
                    return found
        return None

    def _order(self, request: Request, changes: list[Change]) -> None:
        asked = {each.running.job for each in changes}
        self.stops += [stop_for(change, request, "make room for") for change in changes]
        self._able = [each for each in self._able if each.running.job not in asked]
        self._free(changes)
        self._note_candidates()


def _let_in_as(items: Sequence[Missing]) -> list[tuple[Ask, ...]]:
    """What one request lacks: all of it at once, or one slot after the other."""
    if items[0].request.is_together:
        return [tuple(each.ask for each in items for _ in range(each.lacking))]
    return [(each.ask,) for each in items]


# -- what if -----------------------------------------------------------------------------------------------------------


def _fitting(rooms: Rooms, has: Sequence[Placement], sizes: Iterable[Size]) -> tuple[Placement, ...]:
    """Places for the first of these sizes that fits, on the nodes where the job was; none where no size does."""
    for size in sizes:
        trial, found = dict(rooms), list[Placement]()
        for each in kept(has, size):
            if each.node in trial and (placement := trial[each.node].place(each.resources)):
                trial[each.node] = trial[each.node].copy()
                trial[each.node].give(placement)
                found.append(placement)
        if len(found) == min(size.workers, len(has)):
            return tuple(found)
    return ()


def _nodes_to_leave(flexible: Iterable[Change]) -> list[str]:
    """Jobs on several nodes can give up one node first; each choice is tried."""
    nodes = [{placement.node for placement in each.has} for each in flexible]
    return sorted(set[str]().union(*(several for several in nodes if len(several) > 1))) or [""]


def _cheapest(
    rooms: Rooms, asks: Sequence[Ask], options: Sequence[Change], protected: Sequence[Protected]
) -> list[Change] | None:
    """Few of these changes, at little loss, with which all asks fit, and none that could be left out or be smaller."""
    needed = _needed(rooms, asks, options, protected)
    return _as_large_as_possible(rooms, asks, needed, protected) if needed is not None else None


def _needed(
    rooms: Rooms, asks: Sequence[Ask], options: Sequence[Change], protected: Sequence[Protected]
) -> list[Change] | None:
    """As `_cheapest`, but no change is made smaller. The choice does not depend on candidates that were not chosen."""
    if place_all(after(rooms, options), asks, protected) is None:
        return None
    chosen = _ask_by_ask(rooms, asks, options, protected)
    if place_all(after(rooms, chosen), asks, protected) is None:
        chosen = list(options)
    return _without_superfluous(rooms, asks, chosen, protected)


def _without_superfluous(
    rooms: Rooms, asks: Sequence[Ask], chosen: list[Change], protected: Sequence[Protected]
) -> list[Change]:
    for change in sorted(chosen, key=loss, reverse=True):
        fewer = [each for each in chosen if each is not change]
        if place_all(after(rooms, fewer), asks, protected) is not None:
            chosen = fewer
    return chosen


def _ask_by_ask(
    rooms: Rooms, asks: Sequence[Ask], options: Sequence[Change], protected: Sequence[Protected]
) -> list[Change]:
    """For one ask after the other: the cheapest changes, on the node where they cost least."""
    chosen: list[Change] = []
    for ask in asks:
        placed = place_all(rooms, [ask], protected)
        if placed is None:
            left = [each for each in options if each not in chosen]
            found = [_on_node(room, ask, left, protected) for room in rooms.values()]
            cheapest = min(filter(None, found), key=lambda changes: sum(map(loss, changes)), default=None)
            rooms = after(rooms, cheapest or ())
            placed = place_all(rooms, [ask], protected)
            if cheapest is None or placed is None:
                return chosen
            chosen += cheapest
        room = rooms[placed[0].node].copy()
        room.give(placed[0])
        rooms = rooms | {placed[0].node: room}
    return chosen


def _on_node(room: Room, ask: Ask, options: Iterable[Change], protected: Sequence[Protected]) -> list[Change] | None:
    """The changes with the least loss per unit of what the ask lacks, until it fits on this node."""
    node = room.node.id
    here = [each for each in options if any(placement.node == node for placement in each.has)]
    if not here or room.node.state is not NodeState.UP or not ask.where.allows(room.node):
        return None
    rooms, chosen = {node: room}, list[Change]()
    worth = [(units, _only_on(node, each), each) for each in here if (units := _units_freed(room, ask, each)) > 0]
    whole = {}
    for _, local, change in sorted(worth, key=lambda item: _preference(item[2], item[0])):
        whole[change.running.job] = change
        chosen.append(local)
        if place_all(after(rooms, chosen), [ask], protected):
            needed = _without_superfluous(rooms, [ask], chosen, protected)
            return [whole[each.running.job] for each in needed]
    return None


def _only_on(node: str, change: Change) -> Change:
    has = tuple(each for each in change.has if each.node == node)
    return change._replace(has=has, keeps=tuple(each for each in change.keeps if each.node == node))


def _as_large_as_possible(
    rooms: Rooms, asks: Sequence[Ask], chosen: list[Change], protected: Sequence[Protected]
) -> list[Change]:
    """An elastic job gives up no more than it must."""
    for index, change in enumerate(chosen):
        for size, keeps in _alternatives(change):
            trial = [*chosen]
            trial[index] = change._replace(keeps=keeps, size=size)
            if place_all(after(rooms, trial), asks, protected) is not None:
                chosen = trial
                break
    return chosen


def _alternatives(change: Change) -> Iterator[tuple[Size, tuple[Placement, ...]]]:
    nodes = sorted({placement.node for placement in change.has})
    for size in smaller_sizes(change.running):
        for node in nodes:
            yield size, kept(change.has, size, away_from=node)


# -- what it costs -----------------------------------------------------------------------------------------------------


def _preference(change: Change, units: float) -> tuple[float, int, int]:
    """Least work lost per unit freed; then the lowest priority, then the youngest."""
    return (loss(change) / units, change.running.priority, -change.running.age)


def _units_freed(room: Room, ask: Ask, change: Change) -> float:
    """How much of what the ask lacks on this node the change gives back: GPUs, cores or GiB."""
    local = _only_on(room.node.id, change)
    wanted = ask.resources
    if wanted.whole_node or any(placement.resources.whole_node for placement in local.has):
        return 1.0
    gpus = devices(room, local.has) - devices(room, local.keeps)
    cpu_millis = sum(p.resources.cpu_millis for p in local.has) - sum(p.resources.cpu_millis for p in local.keeps)
    memory_mib = sum(p.resources.memory_mib for p in local.has) - sum(p.resources.memory_mib for p in local.keeps)
    usable = sum(device.can_give(wanted, ask.overcommit) for device in room.devices)
    parts = {slice_mib(wanted) / device.total_mib if wanted.shares_gpus else 1.0 for device in room.devices}
    lacks = [
        min(gpus, max(0, wanted.gpus - usable) * min(1.0, max(parts, default=1.0))),
        min(cpu_millis, max(0, wanted.cpu_millis - room.free_cpu_millis(ask.overcommit))) / 1000,
        min(memory_mib, max(0, wanted.memory_mib - room.memory_mib)) / 1024,
    ]
    return next(filter(None, lacks), 0.0) or gpus or cpu_millis / 1000 or memory_mib / 1024
