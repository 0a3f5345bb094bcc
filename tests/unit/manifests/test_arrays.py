"""Which array ids did the user mean?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.errors import UserError
from jobyard.manifests.arrays import parse_array
from jobyard.model.job import ArrayRange


def ids(array: ArrayRange) -> list[int]:
    return [array.id_of(ordinal) for ordinal in range(len(array))]


@pytest.mark.parametrize(
    ("text", "expected", "limit"),
    [
        ("0-3", [0, 1, 2, 3], None),
        ("0-99%10", list(range(100)), 10),
        ("1-9:2", [1, 3, 5, 7, 9], None),
        ("1-8:3%1", [1, 4, 7], 1),
        ("1,3,5-7", [1, 3, 5, 6, 7], None),
        ("7,1,3", [7, 1, 3], None),
        (" 5 ", [5], None),
        ("0-4:2,1-3:2", [0, 2, 4, 1, 3], None),
    ],
)
def test_ids_stand_in_the_order_written(text: str, expected: list[int], limit: int | None) -> None:
    array, found = parse_array(text)
    assert ids(array) == expected
    assert found == limit


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("9-0", "'9-0' runs backwards; write 0-9"),
        ("-1", "negative"),
        ("0-5,-3", "negative"),
        ("1,1", "names 1 twice"),
        ("0-9,5", "names 5 twice"),
        ("0-9:3,4-12:5", "names 9 twice"),
        ("", "cannot read ''"),
        ("a-b", "cannot read 'a-b'"),
        ("1,,2", "cannot read"),
        ("1-2-3", "cannot read"),
        ("1.5", "cannot read"),
        ("0-9%", "the limit"),
        ("0-9%0", "the limit"),
        ("0-9%x", "the limit"),
        ("0-9:0", "the step"),
        ("٣", "cannot read"),
        ("0-99999999999", "more than 10,000,000 tasks"),
        ("9" * 5000, "cannot read"),
    ],
)
def test_bad_ids_are_refused_with_field_value_and_way_out(text: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_array(text)
    assert str(caught.value).startswith("--array: ")
    assert says in str(caught.value)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=40, unique=True), st.none() | st.integers(1, 50))
def test_any_list_of_ids_is_read_in_its_order(numbers: list[int], limit: int | None) -> None:
    text = ",".join(map(str, numbers)) + (f"%{limit}" if limit else "")
    array, found = parse_array(text)
    assert (ids(array), found) == (numbers, limit)
    assert (array.lowest, array.highest) == (min(numbers), max(numbers))


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 50))
def test_any_range_is_read_as_python_has_it(first: int, more: int, step: int) -> None:
    array, _ = parse_array(f"{first}-{first + more}:{step}")
    assert ids(array) == list(range(first, first + more + 1, step))


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 5)), min_size=1, max_size=5))
def test_a_duplicate_is_found_exactly_where_there_is_one(pieces: list[tuple[int, int, int]]) -> None:
    text = ",".join(f"{first}-{first + more}:{step}" for first, more, step in pieces)
    numbers = [number for first, more, step in pieces for number in range(first, first + more + 1, step)]
    if len(set(numbers)) == len(numbers):
        assert ids(parse_array(text)[0]) == numbers
    else:
        with pytest.raises(UserError, match="twice"):
            parse_array(text)


def test_a_regular_list_of_many_ids_is_few_pieces() -> None:
    array, _ = parse_array(",".join(str(number) for number in range(1, 20001, 2)))
    assert array.pieces == ((1, 19999, 2),)
