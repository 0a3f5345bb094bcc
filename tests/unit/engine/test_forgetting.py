"""Which jobs may leave the yard's memory, and is nothing of them left there?"""

from __future__ import annotations

import pytest

from jobyard.engine import saved_state
from jobyard.engine.forgetting import why_it_stays
from jobyard.engine.handling import handle
from jobyard.engine.planner import Planner
from jobyard.engine.yard_state import YardState
from jobyard.model.events import CancelRequested, Event, JobsForgotten, JobSubmitted, RetryRequested
from jobyard.model.job import Dependency
from tests.builders import a_job, joined, submitted


def a_yard(*events: Event) -> YardState:
    state = YardState()
    for event in (joined(), *events):
        handle(state, event)
    return state


def after(job: str) -> Dependency:
    return Dependency(job, needs_success=False)


def test_a_forgotten_job_leaves_nothing_but_its_number() -> None:
    state = a_yard(
        submitted("a", 1),
        JobSubmitted("b", 2, a_job(after=(after("a"),)), 0.0, key="mine", asked="its digest"),
        CancelRequested("a", 1.0),
        CancelRequested("b", 2.0),
        JobsForgotten(("b", "a", "never-there"), 3.0),
    )
    empty = a_yard()
    empty.last_number = 2
    assert saved_state.save(state) == saved_state.save(empty)
    handle(state, JobsForgotten(("a", "b"), 4.0))


@pytest.mark.parametrize("begun", [False, True])
def test_what_another_job_waits_for_stays_until_that_has_begun(begun: bool) -> None:
    state = a_yard(submitted("a", 1), submitted("b", 2, a_job(after=(after("a"),))), CancelRequested("a", 1.0))
    if begun:
        state.jobs["b"].times.started_at = 2.0
    handle(state, JobsForgotten(("a",), 3.0))
    assert ("a" in state.jobs) is not begun


def test_what_runs_or_was_tried_again_stays() -> None:
    state = a_yard(submitted("a", 1), submitted("b", 2), CancelRequested("b", 1.0))
    assert "end it first: yard cancel 1" in why_it_stays(state, state.jobs["a"])
    assert why_it_stays(state, state.jobs["b"]) == ""
    handle(state, RetryRequested("b", ((0, 0),), 2.0))
    handle(state, JobsForgotten(("a", "b"), 3.0))
    assert set(state.jobs) == {"a", "b"}


def test_a_job_that_was_measured_in_the_round_in_which_it_goes_disturbs_no_plan() -> None:
    state = a_yard(submitted("a", 1), CancelRequested("a", 1.0))
    planner = Planner(state)
    state.changes.measured["a"] = None
    handle(state, JobsForgotten(("a",), 3.0))
    assert list(planner.decide(4.0)) == []
