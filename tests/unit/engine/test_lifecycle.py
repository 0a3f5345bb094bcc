from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.engine.lifecycle import (
    MEANING,
    MOVES,
    Action,
    Assigned,
    Began,
    DelayPassed,
    Ended,
    GivenBack,
    Happening,
    LostItsNode,
    RetryAsked,
    StopAsked,
    YieldAsked,
    advance,
    reason_of,
)
from jobyard.errors import InvalidMove
from jobyard.model.job import Reason, State
from jobyard.model.task import Outcome, Task

outcomes = st.one_of(
    st.builds(Outcome, st.just(1.0), st.just(2.0), exit_code=st.sampled_from([0, 1, 127])),
    st.builds(Outcome, st.just(1.0), st.just(2.0), signal=st.just(9)),
    st.builds(Outcome, st.just(1.0), st.just(2.0), reason=st.sampled_from([Reason.NODE_LOST, Reason.PREEMPTED])),
)
stop_reasons = st.sampled_from([Reason.CANCELLED, Reason.PREEMPTED, Reason.TIMEOUT, Reason.SIBLING_FAILED])
happenings = st.one_of(
    st.builds(Assigned, st.just("s")),
    st.builds(Began, st.just(1.0)),
    st.builds(Ended, outcomes, st.booleans(), st.sampled_from([0.0, 5.0])),
    st.just(GivenBack()),
    st.just(LostItsNode("gone")),
    st.builds(StopAsked, stop_reasons, st.just("why")),
    st.builds(YieldAsked, st.sampled_from([Reason.PREEMPTED, Reason.RESIZING]), st.just("why")),
    st.builds(RetryAsked, st.sampled_from([0.0, 5.0])),
    st.just(DelayPassed()),
)


@given(st.lists(happenings, max_size=20), st.integers(0, 2))
@settings(deadline=None)
def test_random_happenings_take_only_drawn_arrows(story: list[Happening], retries: int) -> None:
    task = Task(7)
    for happening in story:
        try:
            step = advance(task, happening, retries)
        except InvalidMove:
            continue
        after = step.task
        assert after.state is task.state or after.state in MOVES[task.state]
        assert after.attempt == task.attempt + (isinstance(happening, Assigned))
        assert (after.active is not None) == after.state.is_active
        assert not after.is_yielding or after.state is State.STOPPING
        assert (step.ask is Action.LAUNCH) == (task.state is State.PENDING and after.state is State.STARTING)
        assert not after.not_before or after.state is State.PENDING
        assert step == advance(task, happening, retries), "it is not pure"
        task = after


ENDED_WELL = Ended(Outcome(1, 2, exit_code=0))
ENDED_BADLY = Ended(Outcome(1, 2, exit_code=1))
CANCEL = StopAsked(Reason.CANCELLED, "enough")
STORIES: dict[tuple[State, State], list[Happening]] = {
    (State.PENDING, State.STARTING): [Assigned("s")],
    (State.PENDING, State.CANCELLED): [CANCEL],
    (State.STARTING, State.RUNNING): [Assigned("s"), Began(1.0)],
    (State.STARTING, State.PENDING): [Assigned("s"), GivenBack()],
    (State.STARTING, State.STOPPING): [Assigned("s"), CANCEL],
    (State.STARTING, State.SUCCEEDED): [Assigned("s"), ENDED_WELL],
    (State.STARTING, State.FAILED): [Assigned("s"), ENDED_BADLY],
    (State.RUNNING, State.PENDING): [Assigned("s"), Began(1.0), LostItsNode("gone")],
    (State.RUNNING, State.STOPPING): [Assigned("s"), Began(1.0), CANCEL],
    (State.RUNNING, State.SUCCEEDED): [Assigned("s"), Began(1.0), ENDED_WELL],
    (State.RUNNING, State.FAILED): [Assigned("s"), Began(1.0), ENDED_BADLY],
    (State.STOPPING, State.CANCELLED): [Assigned("s"), CANCEL, ENDED_BADLY],
    (State.STOPPING, State.PENDING): [Assigned("s"), StopAsked(Reason.PREEMPTED, "room"), ENDED_BADLY],
    (State.STOPPING, State.FAILED): [Assigned("s"), StopAsked(Reason.TIMEOUT, "late"), ENDED_BADLY],
    (State.STOPPING, State.SUCCEEDED): [Assigned("s"), YieldAsked(Reason.PREEMPTED, "room"), ENDED_WELL],
    (State.SUCCEEDED, State.PENDING): [Assigned("s"), ENDED_WELL, RetryAsked()],
    (State.FAILED, State.PENDING): [Assigned("s"), ENDED_BADLY, RetryAsked()],
    (State.CANCELLED, State.PENDING): [CANCEL, RetryAsked()],
}


@pytest.mark.parametrize("arrow", [(before, after) for before, drawn in MOVES.items() for after in sorted(drawn)])
def test_every_drawn_arrow_can_be_taken(arrow: tuple[State, State]) -> None:
    task = Task(0)
    for happening in STORIES[arrow]:
        before, task = task.state, advance(task, happening).task
    assert (before, task.state) == arrow


def test_a_happening_without_an_arrow_names_the_task_its_state_and_what_happened() -> None:
    with pytest.raises(InvalidMove, match=r"task 7 is PENDING.*GivenBack"):
        advance(Task(7), GivenBack())


def test_every_state_has_its_arrows_and_its_meaning() -> None:
    assert set(MOVES) == set(MEANING) == set(State)


def test_a_task_that_may_be_tried_again_waits_and_says_why() -> None:
    started = advance(Task(0), Assigned("s")).task
    waiting = advance(started, ENDED_BADLY, retries=1).task
    assert (waiting.state, waiting.failures, waiting.reason) == (State.PENDING, 1, Reason.EXIT_CODE)
    assert "attempt 1 failed" in waiting.message
    again = advance(advance(waiting, Assigned("s")).task, ENDED_BADLY, retries=1).task
    assert (again.state, again.attempt) == (State.FAILED, 2)


def test_losing_the_node_is_no_failure_of_the_task() -> None:
    lost = Ended(Outcome(1, 2, reason=Reason.NODE_LOST))
    task = advance(advance(Task(0), Assigned("s")).task, lost).task
    assert (task.state, task.failures) == (State.PENDING, 0)


def test_a_task_stopped_for_good_keeps_its_first_reason_and_sentence() -> None:
    task = advance(advance(Task(0), Assigned("s")).task, CANCEL).task
    task = advance(task, StopAsked(Reason.PREEMPTED, "restarting with its gang")).task
    assert (task.reason, task.message) == (Reason.CANCELLED, "enough")


def test_a_task_that_was_to_wait_again_can_still_be_cancelled() -> None:
    task = advance(advance(Task(0), Assigned("s")).task, StopAsked(Reason.PREEMPTED, "room")).task
    task = advance(task, CANCEL).task
    assert advance(task, GivenBack()).task.state is State.CANCELLED


@pytest.mark.parametrize(
    ("outcome", "reason", "words"),
    [
        (Outcome(0, 1, exit_code=2), Reason.EXIT_CODE, "exited with code 2"),
        (Outcome(0, 1, exit_code=127), Reason.EXIT_CODE, "command not found"),
        (Outcome(0, 1, exit_code=1, message="no data"), Reason.EXIT_CODE, "no data"),
        (Outcome(0, 1, signal=9), Reason.SIGNAL, "SIGKILL"),
        (Outcome(0, 1), Reason.UNKNOWN, "no exit status"),
        (Outcome(0, 1, exit_code=0, reason=Reason.TIMEOUT), Reason.TIMEOUT, "timeout"),
        (Outcome(0, 1, reason=Reason.UNKNOWN, message="lane died"), Reason.UNKNOWN, "lane died"),
    ],
)
def test_every_bad_end_has_a_reason_and_a_sentence(outcome: Outcome, reason: Reason, words: str) -> None:
    assert not outcome.succeeded
    found, sentence = reason_of(outcome)
    assert found is reason
    assert words in sentence
