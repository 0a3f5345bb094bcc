"""Node ranking (cache): which node is best for one more task, without looking at a thousand of them each time?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from jobyard.model.node import Node, NodeConfig, NodeState, cluster_of
from jobyard.model.resources import Placement
from jobyard.scheduling.missing import Ask
from jobyard.scheduling.placement import Candidate, Protected, Room, candidate_on
from jobyard.scheduling.snapshot import Wait


class _Known(NamedTuple):
    node: Node
    placements: list[Placement]
    room: Room  # never changed: Rooms copies one before it gives from it


class KnownRooms:
    """The rooms of the last cycle, for the next one: most nodes are as they were. Only a cache: it changes no plan."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._candidates: dict[Ask, dict[str, Candidate | None]] = {}  # of the asks of this cycle, by node
        self._candidates_before: dict[Ask, dict[str, Candidate | None]] = {}
        # Why asks were refused before anything was given out, and which job was ahead of them then.
        self._refusals: dict[tuple[Ask, str], Wait] = {}
        self._refusals_before: dict[tuple[Ask, str], Wait] = {}
        self._unreached: Sequence[NodeConfig] = ()

    def __reduce__(self) -> tuple[type[KnownRooms], tuple[()]]:
        return KnownRooms, ()  # a cache: it is not saved with the state

    def of(self, nodes: Iterable[Node], placements: Iterable[Placement], unreached: Sequence[NodeConfig] = ()) -> Rooms:
        """What these placements leave of these nodes."""
        by_node: defaultdict[str, list[Placement]] = defaultdict(list)
        for placement in placements:
            by_node[placement.node].append(placement)
        before, self._known = self._known, {}
        for node in nodes:
            known, here = before.get(node.id), by_node.get(node.id, [])
            if known is None or known.node is not node or known.placements != here:
                known = _Known(node, here, _room(node, here))
            self._known[node.id] = known
        changed = [name for name, known in before.items() if self._known.get(name) is not known]
        for candidates in self._candidates.values():
            for name in changed:
                candidates.pop(name, None)
        self._candidates_before, self._candidates = self._candidates, {}  # entries of asks that are gone are dropped
        is_as_before = not changed and len(before) == len(self._known) and unreached == self._unreached
        self._refusals_before, self._refusals = self._refusals if is_as_before else {}, {}
        self._unreached = unreached
        return Rooms({name: known.room for name, known in self._known.items()}, self.candidates)

    def candidates(self, ask: Ask) -> dict[str, Candidate | None]:
        """How well each node fits this ask at the start of the cycle, as far as computed. The caller fills it."""
        if ask not in self._candidates:
            self._candidates[ask] = self._candidates_before.get(ask, {})
        return self._candidates[ask]

    def refusal(self, ask: Ask, ahead: str, explain: Callable[[], Wait]) -> Wait:
        """Why there is no room for it before anything is given out in this cycle, with this job ahead of it."""
        key = (ask, ahead)
        wait = self._refusals_before.get(key)
        self._refusals[key] = wait = explain() if wait is None else wait
        return wait


def _room(node: Node, placements: Iterable[Placement]) -> Room:
    room = Room(node)
    for placement in placements:
        room.give(placement)
    return room


class _Ranking:
    """Nodes that could take one ask, best first. Entries of rooms that have changed since are skipped."""

    __slots__ = ("candidates", "seen")

    def __init__(self) -> None:
        self.candidates: list[Candidate] = []
        self.seen = 0  # how many changes of rooms it includes


class Rooms:
    """All rooms of one cycle. The same choice as by `choose_node`, from rankings that follow what changes.

    What `protected` holds may only grow during a cycle.
    """

    def __init__(
        self, rooms: dict[str, Room], remembered: Callable[[Ask], dict[str, Candidate | None]] = lambda ask: {}
    ) -> None:
        self.by_node = dict(rooms)
        self._remembered = remembered
        self._own: set[str] = set()
        self._versions: Counter[str] = Counter()
        self._changes: list[str] = []  # the nodes whose room changed, in order
        self._rankings: dict[Ask, _Ranking] = {}

    @property
    def are_untouched(self) -> bool:
        """Was nothing given out in this cycle?"""
        return not self._changes

    def give(self, placement: Placement) -> None:
        self._changed(placement.node).give(placement)

    def take_back(self, placement: Placement) -> None:
        self._changed(placement.node).take_back(placement)

    def _changed(self, node: str) -> Room:
        if node not in self._own:
            self._own.add(node)
            self.by_node[node] = self.by_node[node].copy()
        self._versions[node] += 1
        self._changes.append(node)
        return self.by_node[node]

    def fit(self, ask: Ask) -> bool:
        """Could any node take it, if nothing were kept for others? Quicker than to choose one."""
        return bool(self._ranking(ask).candidates)

    def choose(self, ask: Ask, protected: Sequence[Protected]) -> Placement | None:
        """The best node for it that delays no request in `protected`."""
        ranking = self._ranking(ask)
        while ranking.candidates:
            best = ranking.candidates[0]
            if best.version == self._versions[best.node] and not (
                protected and self.by_node[best.node].hurts(best.placement, protected)
            ):
                return best.placement
            heappop(
                ranking.candidates
            )  # the room has changed since, or is kept for others and stays so until it changes
        return None

    def _ranking(self, ask: Ask) -> _Ranking:
        ranking = self._rankings.get(ask)
        if ranking is None:
            ranking = self._rankings[ask] = _Ranking()
            ranking.candidates = self._all_candidates(ask)
            heapify(ranking.candidates)
        else:
            for name in set(self._changes[ranking.seen :]):
                if (candidate := self._candidate(name, ask)) is not None:
                    heappush(ranking.candidates, candidate)
        ranking.seen = len(self._changes)
        return ranking

    def _all_candidates(self, ask: Ask) -> list[Candidate]:
        found: list[Candidate | None] = []
        remembered = self._remembered(ask)
        for name in self.by_node:
            if cluster_of(name) != ask.where.cluster:
                continue
            if name in self._own:
                found.append(self._candidate(name, ask))
                continue
            if name not in remembered:
                remembered[name] = self._candidate(name, ask)
            found.append(remembered[name])
        return [candidate for candidate in found if candidate is not None]

    def _candidate(self, name: str, ask: Ask) -> Candidate | None:
        room = self.by_node[name]
        if room.node.state is not NodeState.UP or not ask.where.allows(room.node):
            return None
        return candidate_on(room, ask.resources, ask.overcommit, self._versions[name])
