"""Several jobs by one word: `3-7`, `3-`, `1,4-6`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Said, StandIn
from tests.unit.client.views import a_job_view

from jobyard.model.job import State
from jobyard.wire.kept import RemovalView
from jobyard.wire.views import JobView


def ended(number: int, name: str = "train") -> JobView:
    return replace(a_job_view(State.FAILED), id=f"j{number}", number=number, name=name)


@pytest.fixture
def jobs(stand_in: StandIn) -> StandIn:
    stand_in.on("GET /jobs", Said(data=[ended(number) for number in (7, 5, 4, 2, 1)]))
    stand_in.on("POST /remove", Said(data=RemovalView(())))
    return stand_in


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["1-3"], ["1", "2"]),
        (["2", "4-9"], ["2", "4", "5", "7"]),
        (["5-"], ["5", "7"]),
        (["1,4-5", "4", "fit"], ["1", "4", "5", "fit"]),
    ],
)
def test_a_range_is_the_jobs_of_these_numbers_that_are_there(
    words: list[str], meant: list[str], yard: Yard, jobs: StandIn
) -> None:
    assert yard("rm", *words).code == 0
    assert jobs.calls("POST /remove")[0].body == {"jobs": meant}


def test_a_job_whose_name_reads_as_a_range_is_meant_by_it(yard: Yard, jobs: StandIn) -> None:
    jobs.on("GET /jobs", Said(data=[ended(3), ended(9, "1-3")]))
    assert yard("rm", "1-3").code == 0
    assert jobs.calls("POST /remove")[0].body == {"jobs": ["1-3"]}


@pytest.mark.parametrize(
    ("word", "sentence"),
    [("8-9", "no job has a number in 8-9; `yard ls -a` lists them"), ("4-2", "job 2 comes before job 4; write 2-4")],
)
def test_a_range_that_names_nothing_is_refused(word: str, sentence: str, yard: Yard, jobs: StandIn) -> None:
    for verb in ("rm", "cancel", "retry", "wait"):
        result = yard(verb, "1", word)
        assert (result.code, sentence in result.err) == (2, True), result.err
    assert not jobs.calls("POST /remove")


def test_numbers_and_names_need_no_list_of_all_jobs(yard: Yard, jobs: StandIn) -> None:
    assert yard("rm", "1", "fit").code == 0
    assert not jobs.calls("GET /jobs")


def test_cancel_and_retry_take_ranges_of_jobs_too(yard: Yard, jobs: StandIn) -> None:
    for number in (1, 2):
        jobs.on(f"GET /jobs/{number}", Said(data=ended(number)))
        jobs.on(f"POST /jobs/j{number}/retry", Said(data=ended(number)))
    jobs.on("POST /cancel", Said(data=[ended(1), ended(2)]))
    assert yard("cancel", "1-3").code == 0
    assert jobs.calls("POST /cancel")[0].body == {"jobs": ["j1", "j2"]}
    assert yard("retry", "1-3").code == 0
    assert jobs.calls("POST /jobs/j2/retry")


@pytest.mark.parametrize(
    ("words", "query"),
    [
        (["--state", "failed"], {"state": "FAILED"}),
        (["--name", "fit*"], {"state": "SUCCEEDED,FAILED,CANCELLED", "name": "fit*"}),
        (["--state", "ended"], {"state": "SUCCEEDED,FAILED,CANCELLED"}),
    ],
)
def test_rm_takes_what_ended_by_its_state_or_name(
    words: list[str], query: dict[str, str], yard: Yard, jobs: StandIn
) -> None:
    assert yard("rm", *words).code == 0
    assert jobs.calls("GET /jobs")[0].query == {"all": "true", **query}
    assert jobs.calls("POST /remove")[0].body == {"jobs": ["j7", "j5", "j4", "j2", "j1"]}


def test_rm_by_a_state_that_no_job_has_removes_nothing(yard: Yard, jobs: StandIn) -> None:
    jobs.on("GET /jobs", Said(data=[]))
    result = yard("rm", "--state", "failed")
    assert (result.code, result.err) == (0, "yard: no such jobs have ended; nothing was removed\n")
    assert not jobs.calls("POST /remove")


@pytest.mark.parametrize("words", [[], ["3", "--state", "failed"]])
def test_rm_wants_jobs_or_a_filter(words: list[str], yard: Yard, jobs: StandIn) -> None:
    result = yard("rm", *words)
    assert (result.code, "name jobs, as in 17 or 3-7, or give --state or --name" in result.err) == (2, True)


def test_a_range_of_several_jobs_has_no_tasks(yard: Yard, jobs: StandIn) -> None:
    result = yard("cancel", "1-3", "--task", "0")
    assert (result.code, "name exactly one job whose tasks are meant" in result.err) == (2, True)
