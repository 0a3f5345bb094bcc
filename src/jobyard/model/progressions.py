"""Progressions: do ids like 0-9999999:2 and 1-9999999:4 overlap? Answered without enumerating them."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

COMPARED_MOST = 200_000  # pairs; about a fifth of a second


class TooManyRanges(Exception):
    """The ranges overlap so often that comparing them would take too long."""


def first_duplicate(ranges: Iterable[range]) -> int | None:
    """An id that is in two of the ranges, none of which is empty. Raises TooManyRanges."""
    open_ranges: list[range] = []
    compared = 0
    for here in sorted(ranges, key=lambda each: each[0]):
        open_ranges = [other for other in open_ranges if other[-1] >= here[0]]
        compared += len(open_ranges)
        if compared > COMPARED_MOST:
            raise TooManyRanges
        for other in open_ranges:
            if (twice := first_common(here, other)) is not None:
                return twice
        open_ranges.append(here)
    return None


def first_common(one: range, other: range) -> int | None:
    """The lowest number that is in both, by the Chinese remainder theorem."""
    common = gcd(one.step, other.step)
    distance, odd = divmod(other[0] - one[0], common)
    if odd:
        return None
    period = other.step // common
    found = one[0] + one.step * (distance * pow(one.step // common, -1, period) % period)
    low, both = max(one[0], other[0]), one.step * period
    found += -((found - low) // both) * both
    return found if found <= min(one[-1], other[-1]) else None
