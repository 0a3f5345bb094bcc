"""Which jobs a list has."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from jobyard.engine.handling import handle
from jobyard.engine.yard_state import YardState
from jobyard.model.events import CancelRequested
from jobyard.model.job import State
from jobyard.server import queries
from jobyard.server.queries import JobFilter, job_page
from tests.builders import a_job, submitted


@pytest.fixture
def loop() -> Any:
    """Of twenty jobs the first fifteen were cancelled, each in its own second."""
    state = YardState()
    for number in range(1, 21):
        spec = replace(
            a_job(user="ben" if number % 2 else "ann"), name=f"{'train' if number < 10 else 'eval'}-{number}"
        )
        handle(state, submitted(f"j{number}", number, spec, at=float(number)))
    for number in range(1, 16):
        handle(state, CancelRequested(f"j{number}", 100.0 + number, (), False, ""))
    return SimpleNamespace(state=state)


@pytest.mark.parametrize(
    ("wanted", "listed", "total"),
    [
        (JobFilter(), 15, 20),  # what has not ended, and the ten that ended last
        (JobFilter(with_all_ended=True), 20, 20),
        (JobFilter(with_all_ended=True, name="train-*"), 9, 9),
        (JobFilter(with_all_ended=True, name="train-1"), 1, 1),
        (JobFilter(with_all_ended=True, user="ann"), 10, 10),
        (JobFilter(with_all_ended=True, since=111.0), 10, 10),
        (JobFilter({State.CANCELLED}, "ben", with_all_ended=True, name="eval-*", since=113.0), 2, 2),
    ],
)
def test_a_list_has_the_jobs_that_are_wanted_and_counts_all_of_them(
    loop: Any, wanted: JobFilter, listed: int, total: int
) -> None:
    page = job_page(loop, wanted, None, 1000)
    assert (len(page.jobs), page.total) == (listed, total)
    first = job_page(loop, wanted, None, 1)
    assert (first.jobs, first.total) == (page.jobs[:1], total)


def test_a_list_without_a_filter_looks_at_no_job_alone_and_one_of_failures_at_those_that_ended(
    loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = Mock(return_value=True)
    monkeypatch.setattr(queries, "_is_wanted", looked_at)
    assert len(job_page(loop, JobFilter(), None, 1000).jobs) == 15
    assert len(job_page(loop, JobFilter(only_unfinished=True), None, 1000).jobs) == 5
    assert looked_at.call_count == 0
    job_page(loop, JobFilter({State.FAILED}), None, 1000)
    assert looked_at.call_count == 15
    job_page(loop, JobFilter({State.PENDING}), None, 1000)
    assert looked_at.call_count == 20


def test_pages_go_on_below_the_last_number_until_there_are_no_more(loop: Any) -> None:
    whole = job_page(loop, JobFilter(), None, 1000)
    found: list[str] = []
    before = None
    while len(found) < 100:
        page = job_page(loop, JobFilter(), before, 4)
        found += page.jobs
        before = page.next_before
        if before is None:
            break
    assert found == list(whole.jobs)
    assert job_page(loop, JobFilter(), None, 0) == ([], None, 20)
