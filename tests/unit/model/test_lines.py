"""Many lines as one text: whatever they hold, each comes back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.errors import UserError
from jobyard.model.checks import check
from jobyard.model.codec import decode, encode
from jobyard.model.inputs import Column
from jobyard.model.lines import Lines

value = st.text(st.sampled_from("ab\n \r"), max_size=5)


@given(values=st.lists(value, max_size=8), most=st.integers(0, 6))
def test_each_value_comes_back_also_with_line_breaks_and_over_the_wire(values: list[str], most: int) -> None:
    lines = Lines.of(values)
    assert list(lines) == values
    column = Column(lines)
    check(column)
    assert list(decode(Column, encode(column)).values) == values
    assert bool(lines.longer_than(most)) == any(len(each) > most for each in values)


@pytest.mark.parametrize("values", [["a\0b"], ["a\0b", "c\nd"], ["a\n\0"], ["\0"]])
def test_a_value_with_a_nul_character_is_refused(values: list[str]) -> None:
    with pytest.raises(UserError, match="has a NUL byte"):
        check(Column(Lines.of(values)))
