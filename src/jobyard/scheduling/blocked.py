"""Blocked requests: what do those lack that found no room in this cycle? Spelled out only as far as somebody asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import merge
from operator import itemgetter

from jobyard.scheduling.line import Alike, Line, Shape
from jobyard.scheduling.missing import Ask, Missing
from jobyard.scheduling.ordering import Position, position_of
from jobyard.scheduling.snapshot import Request


def all_of(request: Request) -> list[Missing]:
    """It got nothing."""
    return [Missing(request, member, member.wanted) for member in request.least]


class Blocked:
    """In order. One that a cycle looked at is stored alone; those of its shape behind it are a part of the line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._alone: list[tuple[Position, list[Missing]]] = []
        self._parts: dict[Shape, list[tuple[int, int]]] = {}  # of the requests of this shape, by index

    def add(self, missing: list[Missing]) -> None:
        """Of one request, after those that are before it in order."""
        self._alone.append((position_of(missing[0].request), missing))

    def add_part(self, alike: Alike, begin: int, end: int) -> None:
        """Requests of which nobody gets anything."""
        parts = self._parts.setdefault(alike.shape, [])
        if parts and parts[-1][1] == begin:
            begin = parts.pop()[0]
        parts.append((begin, end))

    def __bool__(self) -> bool:
        return bool(self._alone or self._parts)

    def __iter__(self) -> Iterator[Missing]:
        parts = (self._part(shape, *part) for shape, parts in self._parts.items() for part in parts)
        return (each for _, missing in merge(self._alone, *parts, key=itemgetter(0)) for each in missing)

    def _part(self, shape: Shape, begin: int, end: int) -> Iterator[tuple[Position, list[Missing]]]:
        alike = self._line.alike(shape)
        return ((alike.positions[index], all_of(alike.requests[index])) for index in range(begin, end))

    def has(self, job: str) -> bool:
        if any(missing[0].request.job == job for _, missing in self._alone):
            return True
        place = self._line.place_of(job)
        if place is None:
            return False
        positions = self._line.alike(place.shape).positions
        parts = self._parts.get(place.shape, ())
        return any(positions[begin] <= place.position <= positions[end - 1] for begin, end in parts)

    def samples(self) -> Iterator[list[Missing]]:
        """What one request lacks, for each way to lack something; in no order."""
        yield from (missing for _, missing in self._alone)
        for shape, parts in self._parts.items():
            yield all_of(self._line.alike(shape).requests[parts[0][0]])

    def by_ask(self) -> Counter[Ask]:
        """How many slots of each ask are missing in all."""
        found: Counter[Ask] = Counter()
        for _, missing in self._alone:
            for each in missing:
                found[each.ask] += each.lacking
        for shape, parts in self._parts.items():
            requests = sum(end - begin for begin, end in parts)
            for each in all_of(self._line.alike(shape).requests[parts[0][0]]):
                found[each.ask] += each.lacking * requests
        return found
