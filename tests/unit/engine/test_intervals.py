from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.engine.intervals import IntervalSet

numbers = st.integers(0, 30)
operations = st.lists(st.tuples(st.booleans(), numbers, numbers), max_size=30)


def build(steps: list[tuple[bool, int, int]]) -> tuple[IntervalSet, set[int]]:
    intervals, plain = IntervalSet(), set[int]()
    for adding, first, last in steps:
        if adding:
            intervals.add(first, last)
            plain |= set(range(first, last + 1))
        else:
            intervals.remove(first, last)
            plain -= set(range(first, last + 1))
    return intervals, plain


@given(operations)
@settings(deadline=None)
def test_it_holds_what_a_plain_set_holds(steps: list[tuple[bool, int, int]]) -> None:
    intervals, plain = build(steps)
    assert list(intervals) == sorted(plain)
    assert len(intervals) == len(plain)
    assert all((number in intervals) == (number in plain) for number in range(-1, 33))


@given(operations)
@settings(deadline=None)
def test_its_ranges_are_sorted_and_never_touch(steps: list[tuple[bool, int, int]]) -> None:
    ranges = list(build(steps)[0].ranges())
    assert all(first <= last for first, last in ranges)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(ranges))


@given(operations, numbers, numbers, st.integers(0, 12))
@settings(deadline=None)
def test_windows_and_counts(steps: list[tuple[bool, int, int]], low: int, high: int, most: int) -> None:
    intervals, plain = build(steps)
    within = sorted(number for number in plain if low <= number <= high)
    assert intervals.count_within(low, high) == len(within)
    found = intervals.first_within(low, high, most)
    assert [number for first, last in found for number in range(first, last + 1)] == within[:most]
    assert all(first <= last for first, last in found)


@given(operations, operations)
@settings(deadline=None)
def test_two_sets_are_put_together_as_plain_sets_are(
    one: list[tuple[bool, int, int]], other: list[tuple[bool, int, int]]
) -> None:
    (left, plain_left), (right, plain_right) = build(one), build(other)
    for found, plain in (
        (left & right, plain_left & plain_right),
        (left | right, plain_left | plain_right),
        (left - right, plain_left - plain_right),
    ):
        assert found == IntervalSet((number, number) for number in sorted(plain))
        assert len(found) == len(plain)
    assert (left, right) == (build(one)[0], build(other)[0])  # themselves they stay


@given(operations)
@settings(deadline=None)
def test_equal_sets_are_equal_however_they_came_about(steps: list[tuple[bool, int, int]]) -> None:
    intervals, plain = build(steps)
    assert intervals == IntervalSet((number, number) for number in sorted(plain, reverse=True))
    assert intervals != IntervalSet([(100, 100)])


def test_a_million_numbers_are_one_range() -> None:
    intervals = IntervalSet([(0, 999_999)])
    intervals.remove(500_000)
    assert list(intervals.ranges()) == [(0, 499_999), (500_001, 999_999)]
    intervals.add(500_000)
    assert list(intervals.ranges()) == [(0, 999_999)]


def test_an_empty_range_is_nothing() -> None:
    intervals = IntervalSet([(0, -1)])
    assert len(intervals) == 0
    assert list(intervals.ranges()) == []
