"""Interval set: how does a set of a million task numbers cost two integers? It is stored as sorted ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class IntervalSet:
    """A mutable set of whole numbers, kept as disjoint, non-touching, inclusive ranges."""

    __slots__ = ("_firsts", "_lasts", "_size")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._size = 0
        for first, last in ranges:
            self.add(first, last)

    def __len__(self) -> int:
        return self._size

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges():
            yield from range(first, last + 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and list(self.ranges()) == list(other.ranges())

    def __and__(self, other: IntervalSet) -> IntervalSet:
        """The numbers that both hold."""
        few, many = sorted((self, other), key=lambda each: len(each._firsts))
        return IntervalSet(
            found for low, high in few.ranges() for found in many.first_within(low, high, high - low + 1)
        )

    def __or__(self, other: IntervalSet) -> IntervalSet:
        """The numbers that one of them holds."""
        return IntervalSet(sorted((*self.ranges(), *other.ranges())))  # in order, each is added at the end

    def __sub__(self, other: IntervalSet) -> IntervalSet:
        """The numbers that only this one holds."""
        left = IntervalSet()
        for first, last in self.ranges():
            for low, high in other.first_within(first, last, last - first + 1):
                left.add(first, low - 1)
                first = high + 1
            left.add(first, last)
        return left

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"IntervalSet({list(self.ranges())})"

    def ranges(self) -> Iterator[tuple[int, int]]:
        return zip(list(self._firsts), list(self._lasts), strict=True)

    def add(self, first: int, last: int | None = None) -> None:
        """Add first..last; what is there already stays. An empty range (last < first) adds nothing."""
        last = first if last is None else last
        if last < first:
            return
        low = bisect_left(self._lasts, first - 1)  # the first range that touches or follows
        high = bisect_right(self._firsts, last + 1)  # one past the last range that touches
        absorbed = sum(self._lasts[i] - self._firsts[i] + 1 for i in range(low, high))
        if low < high:
            first, last = min(first, self._firsts[low]), max(last, self._lasts[high - 1])
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]
        self._size += last - first + 1 - absorbed

    def remove(self, first: int, last: int | None = None) -> None:
        """Take first..last out; numbers that are not in the set do not matter."""
        last = first if last is None else last
        if last < first:
            return
        low, high = bisect_left(self._lasts, first), bisect_right(self._firsts, last)
        if low >= high:
            return
        removed = sum(self._lasts[i] - self._firsts[i] + 1 for i in range(low, high))
        kept = []
        if self._firsts[low] < first:
            kept.append((self._firsts[low], first - 1))
        if self._lasts[high - 1] > last:
            kept.append((last + 1, self._lasts[high - 1]))
        self._firsts[low:high] = [piece[0] for piece in kept]
        self._lasts[low:high] = [piece[1] for piece in kept]
        self._size -= removed - sum(b - a + 1 for a, b in kept)

    def first_within(self, low: int, high: int, most: int) -> list[tuple[int, int]]:
        """The lowest `most` members of low..high, as ranges."""
        found: list[tuple[int, int]] = []
        at = bisect_left(self._lasts, low)
        while low <= high and most > 0 and at < len(self._firsts) and self._firsts[at] <= high:
            first = max(low, self._firsts[at])
            last = min(high, self._lasts[at], first + most - 1)
            found.append((first, last))
            most -= last - first + 1
            at += 1
        return found

    def count_within(self, low: int, high: int) -> int:
        at, total = bisect_left(self._lasts, low), 0
        while low <= high and at < len(self._firsts) and self._firsts[at] <= high:
            total += min(high, self._lasts[at]) - max(low, self._firsts[at]) + 1
            at += 1
        return total
