"""Which job a selector means; and that it never means another one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.engine.handling import handle
from jobyard.engine.yard_state import YardState
from jobyard.errors import NotFound, UserError
from jobyard.model.events import CancelRequested
from jobyard.server.finding import find_job, find_live_job
from tests.builders import a_job, submitted


def a_yard(*jobs: tuple[str, int, str]) -> YardState:
    state = YardState()
    for job_id, number, name in jobs:
        handle(state, submitted(job_id, number, a_job(name=name)))
    return state


YARD = a_yard(("059ab0c1", 7, "train"), ("12345abc", 59, "train"), ("fba340d4", 60, "88"), ("fbb00000", 61, "x"))


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("59", "12345abc"),
        ("7", "059ab0c1"),
        ("059a", "059ab0c1"),
        ("12345a", "12345abc"),
        ("fba340d4", "fba340d4"),
        ("fba", "fba340d4"),
        ("train", "12345abc"),
        ("last", "fbb00000"),
    ],
)
def test_a_job_is_found_by_number_id_beginning_name_and_last(selector: str, found: str) -> None:
    assert find_job(YARD, selector).id == found


@pytest.mark.parametrize("selector", ["059", "0", "00", "012345"])
def test_digits_that_begin_with_a_zero_are_no_number_and_no_beginning_of_an_id(selector: str) -> None:
    with pytest.raises(UserError, match="there is a letter"):
        find_job(YARD, selector)


@pytest.mark.parametrize("selector", ["12345", "1", "5", "9" * 18, "9" * 5000])
def test_digits_are_never_the_beginning_of_an_id(selector: str) -> None:
    with pytest.raises(NotFound, match=f"no job has the number {selector[:20]}|^job {selector} is gone"):
        find_job(YARD, selector)


def test_a_number_wins_over_a_name_of_digits_which_is_told_with_its_id() -> None:
    with pytest.raises(NotFound, match=r"the job of that name has the number \d+"):
        find_job(YARD, "88")
    assert find_job(a_yard(("aaaaaaaa", 1, "2"), ("bbbbbbbb", 2, "1")), "1").id == "aaaaaaaa"


@pytest.mark.parametrize("selector", ["", "nobody", "²", "٣", "-1", "+7", "1_0", " 7", "fbaX"])
def test_what_names_no_job_finds_none(selector: str) -> None:
    with pytest.raises(NotFound):
        find_job(YARD, selector)


def test_a_beginning_of_several_ids_is_told() -> None:
    with pytest.raises(UserError, match="fba340d4, fbb00000"):
        find_job(YARD, "fb")


@given(st.from_regex(r"[1-9][0-9]{0,6}", fullmatch=True), st.lists(st.from_regex(r"[0-9a-f]{8}", fullmatch=True)))
def test_whatever_the_ids_are_digits_find_the_number_or_nothing(selector: str, ids: list[str]) -> None:
    state = a_yard(*((job_id, number, "n") for number, job_id in enumerate(dict.fromkeys(ids), start=1)))
    try:
        assert find_job(state, selector).number == int(selector)
    except NotFound:
        assert all(job.number != int(selector) for job in state.jobs.values())


def test_what_is_done_to_a_name_is_done_to_the_one_that_has_not_ended() -> None:
    state = a_yard(("aaaaaaaa", 1, "train"), ("bbbbbbbb", 2, "train"))
    with pytest.raises(UserError, match="2 jobs that have not ended are named 'train': 1, 2; say which by its number"):
        find_live_job(state, "train")
    assert find_live_job(state, "2").id == "bbbbbbbb"
    handle(state, CancelRequested("bbbbbbbb", 1.0))
    assert find_live_job(state, "train").id == "aaaaaaaa"
    assert find_job(state, "train").id == "bbbbbbbb"
    handle(state, CancelRequested("aaaaaaaa", 1.0))
    assert find_live_job(state, "train").id == "bbbbbbbb"
