from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.model.progressions import TooManyRanges, first_common, first_duplicate

RANGES = st.builds(
    lambda first, count, step: range(first, first + count * step, step),
    st.integers(0, 40),
    st.integers(1, 15),
    st.integers(1, 12),
)


@given(RANGES, RANGES)
def test_the_first_common_number_is_that_of_counting(one: range, other: range) -> None:
    assert first_common(one, other) == min(set(one) & set(other), default=None)


@given(st.lists(RANGES, max_size=6))
def test_a_duplicate_is_found_exactly_where_there_is_one(ranges: list[range]) -> None:
    every = [number for each in ranges for number in each]
    twice = first_duplicate(ranges)
    assert (twice is None) == (len(every) == len(set(every)))
    assert twice is None or every.count(twice) > 1


def test_long_progressions_are_not_counted_through() -> None:
    assert first_duplicate([range(0, 10**17, 2), range(1, 10**17, 2)]) is None
    assert first_duplicate([range(0, 10**17, 6), range(3, 10**17, 5)]) == 18


def test_thousands_that_lie_across_each_other_are_not_compared() -> None:
    with pytest.raises(TooManyRanges):
        first_duplicate(range(n, 10**9, 10_000) for n in range(10_000))
    assert first_duplicate(range(n, n + 1) for n in range(100_000)) is None
