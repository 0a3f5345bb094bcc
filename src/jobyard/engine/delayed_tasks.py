"""Delayed tasks: which failed tasks of a job may not be tried again yet, and when may they?"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jobyard.model.task import Task


class Delayed(NamedTuple):
    until: float
    number: int


class DelayedTasks:
    """By task number. The first one is found without a look at the others."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self._until: dict[int, float] = {}
        self._order: list[Delayed] = []  # a heap; also of tasks that are delayed no more, until they are its first
        for task in tasks:
            if task.not_before:
                self.add(task.number, task.not_before)

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, number: int) -> bool:
        return number in self._until

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._until))

    def add(self, number: int, until: float) -> None:
        self._until[number] = until
        heapq.heappush(self._order, Delayed(until, number))

    def remove(self, number: int) -> None:
        """Nothing where it is not delayed."""
        self._until.pop(number, None)

    def until(self, number: int) -> float:
        return self._until[number]

    @property
    def first(self) -> Delayed | None:
        """The one whose delay is over first."""
        while self._order and self._until.get(self._order[0].number) != self._order[0].until:
            heapq.heappop(self._order)
        return self._order[0] if self._order else None
