"""Preemption for a quota: which jobs give up part of a cluster's quota for waiting ones? Same rules as on nodes.

Elastic jobs shrink for any request that is not of lower priority; others stop for one of higher priority. What jobs
that were asked before will free counts as free: no job is asked twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from jobyard.model.node import cluster_of
from jobyard.model.resources import Placement
from jobyard.scheduling.blocked import Blocked
from jobyard.scheduling.missing import Missing
from jobyard.scheduling.placement import Room
from jobyard.scheduling.preemption import Made
from jobyard.scheduling.quotas import Allowance, Amounts, amounts_of
from jobyard.scheduling.snapshot import CheckpointStop, Request, Snapshot
from jobyard.scheduling.what_if import (
    Change,
    after,
    as_asked,
    changes_of,
    kept,
    loss,
    place_all,
    smaller_sizes,
    stop_for,
    who_makes_room,
)


def make_quota_room(
    rooms: Mapping[str, Room],
    snapshot: Snapshot,
    over_quota: Blocked,
    allowances: Mapping[str, Allowance],
    asked: Iterable[CheckpointStop],
) -> Made:
    """Which jobs to stop for the requests that a quota blocks, in their order. `asked` are stopped already, for others.

    No job is stopped for a request that would not fit even then. Does not change `rooms` and `allowances`.
    """
    if not over_quota:
        return Made()
    making = _Making(rooms, snapshot, allowances, {stop.job for stop in asked})
    for request, items in groupby(over_quota, key=lambda each: each.request):
        making.serve(request, list(items))
    return Made(tuple(making.stops), making.notes)


class _Making:
    def __init__(
        self, rooms: Mapping[str, Room], snapshot: Snapshot, allowances: Mapping[str, Allowance], asked: set[str]
    ) -> None:
        everyone = changes_of(snapshot)
        self.stops: list[CheckpointStop] = []
        self.notes: dict[str, str] = {}
        self._able = [
            each
            for each in everyone
            if each.has and not (each.running.is_stopping or each.running.is_last_epoch or each.running.job in asked)
        ]
        self._coming = [as_asked(each) for each in everyone if each.running.is_stopping]
        self._rooms = after(dict(rooms), self._coming)
        self._allowances = {cluster: allowance.copy() for cluster, allowance in allowances.items()}
        for change in self._coming:
            self._give_back(change)

    def serve(self, request: Request, items: list[Missing]) -> None:
        allowance = self._allowances[request.cluster]
        whole = amounts_of((each.member.resources, each.lacking) for each in items)
        if allowance.lacking(whole) and (changes := self._choose(request, items, whole)):
            self._order(request, changes)
        if not allowance.lacking(whole):
            helpers = [each.running for each in self._coming if each.running.stops_for == request.job]
            helpers += [each.running for each in self._able if each.running.job in self._stopped_for(request)]
            if helpers:
                self.notes[request.job] = who_makes_room(helpers)
        allowance.give_amounts(whole)

    def _stopped_for(self, request: Request) -> set[str]:
        return {stop.job for stop in self.stops if stop.stops_for == request.job}

    def _choose(self, request: Request, items: list[Missing], wanted: Amounts) -> list[Change] | None:
        """Is it enough that elastic jobs become smaller? If not, jobs of lower priority stop."""
        stopped = {stop.job for stop in self.stops}
        others = [
            each
            for each in self._able
            if each.running.job not in stopped and cluster_of(each.has[0].node) == request.cluster
        ]
        shrunk = [
            each._replace(keeps=kept(each.has, sizes[-1]), size=sizes[-1])
            for each in others
            if each.running.priority <= request.priority and (sizes := smaller_sizes(each.running))
        ]
        lower = [each for each in others if each.running.priority < request.priority]
        equal = [each for each in shrunk if each.running.priority == request.priority]
        for options in (shrunk, lower + equal):
            found = self._fewest(request, options, wanted)
            if found and self._fits(items, found):
                return found
        return None

    def _fewest(self, request: Request, options: Sequence[Change], wanted: Amounts) -> list[Change] | None:
        """Few of them, at little loss for what they free, and each as large as it can stay."""
        lacking = self._allowances[request.cluster].lacking(wanted)
        useful = [each for each in options if any(_freed(each)[name] > 0 for name in lacking)]
        chosen: list[Change] = []
        for each in sorted(useful, key=lambda each: _preference(each, lacking)):
            chosen.append(each)
            if self._is_enough(request, chosen, wanted):
                break
        else:
            return None
        for each in list(chosen):
            if self._is_enough(request, [other for other in chosen if other is not each], wanted):
                chosen.remove(each)
        for index, each in enumerate(chosen):
            for larger in _alternatives(each):
                if self._is_enough(request, [*chosen[:index], larger, *chosen[index + 1 :]], wanted):
                    chosen[index] = larger
                    break
        return chosen

    def _is_enough(self, request: Request, changes: Iterable[Change], wanted: Amounts) -> bool:
        trial = self._allowances[request.cluster].copy()
        for change in changes:
            trial.take_back_amounts(_freed(change))
        return not trial.lacking(wanted)

    def _fits(self, items: Sequence[Missing], changes: Sequence[Change]) -> bool:
        """Is there room on the nodes then? For a job whose tasks need not start together a part is enough."""
        request = items[0].request
        asks = tuple(each.ask for each in items for _ in range(each.lacking))
        is_together = request.gang or bool(request.smaller)
        return place_all(after(self._rooms, changes), asks if is_together else asks[:1], ()) is not None

    def _order(self, request: Request, changes: Sequence[Change]) -> None:
        for change in changes:
            self.stops.append(stop_for(change, request, "leave its quota to"))
            self._give_back(change)
        self._rooms = after(self._rooms, changes)

    def _give_back(self, change: Change) -> None:
        if change.has and (allowance := self._allowances.get(cluster_of(change.has[0].node))):
            allowance.take_back_amounts(_freed(change))


def _freed(change: Change) -> Amounts:
    freed = _amounts(change.has)
    freed.subtract(_amounts(change.keeps))
    return freed


def _amounts(placements: Iterable[Placement]) -> Amounts:
    return amounts_of((placement.resources, 1) for placement in placements)


def _preference(change: Change, lacking: Sequence[str]) -> tuple[float, int, int]:
    """Least work lost for what is freed; then the lowest priority, then the youngest."""
    freed = max(_freed(change)[name] for name in lacking)
    return (loss(change) / max(1, freed), change.running.priority, -change.running.age)


def _alternatives(change: Change) -> Iterator[Change]:
    """An elastic job gives up no more than it must: larger sizes first."""
    if change.size is not None:
        for size in smaller_sizes(change.running):
            yield change._replace(keeps=kept(change.has, size), size=size)
