"""Waiting line: which requests wait, in which order, and which of them are alike? Kept from cycle to cycle.

Requests are alike that want the same of the same places: where one of them finds no room, no later one does. So a cycle
looks at each shape, however many requests have it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from heapq import merge
from operator import itemgetter
from typing import NamedTuple

from jobyard.scheduling.missing import Ask, ask_of
from jobyard.scheduling.ordering import Position, position_of
from jobyard.scheduling.snapshot import Member, Request

Wanted = tuple[tuple[Ask, int], ...]


class Shape(NamedTuple):
    """All of a request that decides whether there is room for it."""

    wanted: Wanted
    gang: bool
    smaller: tuple[Wanted, ...]


def shape_of(request: Request) -> Shape:
    smaller = tuple(_wanted(request, members) for members in request.smaller)
    return Shape(_wanted(request, request.members), request.gang, smaller)


def _wanted(request: Request, members: Iterable[Member]) -> Wanted:
    return tuple((ask_of(request, member), member.wanted) for member in members)


class Alike:
    """The requests of one shape, in order."""

    __slots__ = ("positions", "requests", "shape")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.positions: list[Position] = []
        self.requests: list[Request] = []

    def put(self, position: Position, request: Request) -> None:
        index = bisect_right(self.positions, position)
        self.positions.insert(index, position)
        self.requests.insert(index, request)

    def drop(self, position: Position, job: str) -> None:
        index = bisect_left(self.positions, position)
        while self.requests[index].job != job:
            index += 1
        del self.positions[index], self.requests[index]

    def copy(self) -> Alike:
        other = Alike(self.shape)
        other.positions, other.requests = self.positions.copy(), self.requests.copy()
        return other

    def __iter__(self) -> Iterator[tuple[Position, Request]]:
        return zip(self.positions, self.requests, strict=True)


class Place(NamedTuple):
    """Where a job's request is in the line."""

    position: Position
    request: Request
    shape: Shape


class Line(Collection[Request]):
    """At most one request of each job. It is the same whatever it was before: only what is in it counts."""

    def __init__(self, requests: Iterable[Request] = ()) -> None:
        self._places: dict[str, Place] = {}
        self._by_shape: dict[Shape, Alike] = {}
        for request in requests:
            self.put(request)

    def put(self, request: Request) -> None:
        """Instead of the one that its job had."""
        if known := self._places.get(request.job):
            if known.request == request:
                return
            self.drop(request.job)
        shape = shape_of(request)
        alike = self._by_shape.get(shape)
        if alike is None:
            alike = self._by_shape[shape] = Alike(shape)
        place = self._places[request.job] = Place(position_of(request), request, alike.shape)
        alike.put(place.position, request)

    def drop(self, job: str) -> None:
        """Nothing if it has none."""
        if (place := self._places.pop(job, None)) is None:
            return
        alike = self._by_shape[place.shape]
        alike.drop(place.position, job)
        if not alike.requests:
            del self._by_shape[place.shape]

    def plus(self, request: Request) -> Line:
        """Another line, with this one too."""
        other = Line()
        other._places, other._by_shape = self._places.copy(), self._by_shape.copy()
        for shape in {shape_of(request), *(place.shape for place in (self.place_of(request.job),) if place)}:
            if shape in other._by_shape:
                other._by_shape[shape] = other._by_shape[shape].copy()
        other.put(request)
        return other

    def place_of(self, job: str) -> Place | None:
        return self._places.get(job)

    def alike(self, shape: Shape) -> Alike:
        return self._by_shape[shape]

    def count_before(self, position: tuple[int, ...]) -> int:
        return sum(bisect_left(alike.positions, position) for alike in self._by_shape.values())

    @property
    def shapes(self) -> Collection[Alike]:
        return self._by_shape.values()

    def __iter__(self) -> Iterator[Request]:
        """In order."""
        return (request for _, request in merge(*self._by_shape.values(), key=itemgetter(0)))

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, request: object) -> bool:
        return (
            isinstance(request, Request)
            and (place := self._places.get(request.job)) is not None
            and (place.request == request)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Line) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def line_of(requests: Collection[Request]) -> Line:
    """Themselves, if they are one."""
    return requests if isinstance(requests, Line) else Line(requests)
