"""Log cursor (from a client): which numbers in it can be, as ranges of tasks and as places in files?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from jobyard.engine.intervals import IntervalSet

OFFSET_MOST = 1 << 62  # bytes: no file is as long


def intervals_of(ranges: Sequence[tuple[int, int]]) -> IntervalSet:
    """In order, as we wrote them: others would take long to put together."""
    numbers = [number for span in ranges for number in span]
    if not all(type(number) is int for number in numbers) or any(len(span) != 2 for span in ranges):
        raise ValueError("no ranges")
    if any(late[0] <= early[1] for early, late in pairwise(ranges)):
        raise ValueError("ranges out of order")
    return IntervalSet(ranges)


def offset_of(value: object) -> int:
    if type(value) is not int or not 0 <= value <= OFFSET_MOST:
        raise ValueError(f"{value!r:.40} is no offset")
    return value
