"""Which jobs a list has."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jobyard.engine.handling import handle
from jobyard.engine.yard_state import YardState
from jobyard.model.events import CancelRequested
from jobyard.model.job import State
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
