"""Reasons of waiting: why does each request wait that got nothing in a cycle? Most are looked up by their shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobyard.scheduling.line import Line, Shape
from jobyard.scheduling.ordering import Position
from jobyard.scheduling.snapshot import Wait


class Waits(Mapping[str, Wait]):
    """Why jobs wait. Of those whose shape was refused nothing is stored for each: they are looked up in the line."""

    def __init__(self, line: Line, own: dict[str, Wait], by_shape: dict[Shape, tuple[Position, Wait]]) -> None:
        self._line = line
        self._own = own
        self._by_shape = by_shape  # of its requests from this position on

    def note(self, notes: Mapping[str, str]) -> None:
        """Say more of these jobs."""
        for job, note in notes.items():
            self._own[job] = Wait(self[job].reason, f"{self[job].sentence}; {note}")

    def __getitem__(self, job: str) -> Wait:
        if wait := self._own.get(job):
            return wait
        place = self._line.place_of(job)
        if place is not None and (refused := self._by_shape.get(place.shape)):
            first, wait = refused
            if first <= place.position:
                return wait
        raise KeyError(job)

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (each.job for each in self._line if each.job not in self._own and each.job in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
