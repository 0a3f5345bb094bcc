"""Many ranges of tasks in one request: they cost hardly more than one, and mean the same as one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.engine import task_table
from jobyard.engine.handling import handle
from jobyard.engine.intervals import IntervalSet
from jobyard.engine.invariants import check
from jobyard.engine.yard_state import YardState
from jobyard.model.events import CancelRequested, Event, RetryRequested
from jobyard.model.job import Reason, State
from jobyard.model.task import Task
from tests.builders import a_job, submitted
from tests.unit.engine.driving import calls_of

Ranges = tuple[tuple[int, int], ...]
TASKS = 12
HOW: tuple[Task | None, ...] = (
    None,  # it waits, and was never tried
    Task(0, State.SUCCEEDED, 1),
    Task(0, State.FAILED, 2, Reason.EXIT_CODE),
    Task(0, State.CANCELLED),
    Task(0, State.CANCELLED, 1, Reason.CANCELLED),
    Task(0, State.PENDING, 1, Reason.EXIT_CODE, not_before=500.0),
    Task(0, State.PENDING, 1),
)


def a_state(tasks: int, how: Callable[[int], Task | None]) -> YardState:
    """A job of which each task has become what `how` says of it."""
    state = YardState()
    handle(state, submitted("j", 1, a_job(tasks)))
    for number in range(tasks):
        if (task := how(number)) is not None:
            state.jobs["j"].put(_numbered(task, number))
    return state


def _numbered(task: Task, number: int) -> Task:
    return Task(number, task.state, task.attempt, task.reason, not_before=task.not_before)


def retry(ranges: Ranges) -> Event:
    return RetryRequested("j", ranges, 100.0)


def cancel(ranges: Ranges) -> Event:
    return CancelRequested("j", 100.0, ranges=ranges)


@pytest.mark.parametrize(("ask", "state"), [(retry, State.FAILED), (retry, State.CANCELLED), (cancel, State.PENDING)])
def test_twice_as_many_ranges_are_twice_the_work(ask: Callable[[Ranges], Event], state: State) -> None:
    def work(ranges: int) -> int:
        asked = {State.FAILED: Task(0, State.FAILED, 1), State.CANCELLED: Task(0, State.CANCELLED)}.get(state)
        yard = a_state(2 * ranges, lambda number: Task(0, State.FAILED, 1) if number % 2 else asked)
        event = ask(tuple((number, number) for number in range(0, 2 * ranges, 2)))
        return calls_of(lambda: handle(yard, event))

    assert work(400) < 2.5 * work(200)


def states(yard: YardState) -> list[State]:
    return [yard.jobs["j"].task(number).state for number in range(TASKS)]


@given(
    st.lists(st.sampled_from(HOW), min_size=TASKS, max_size=TASKS),
    st.lists(st.tuples(st.integers(0, TASKS + 2), st.integers(0, TASKS + 2)), min_size=1, max_size=5),
    st.sampled_from([retry, cancel]),
    st.sampled_from([0, 1000]),
)
@settings(deadline=None)
def test_each_task_becomes_what_it_would_alone(
    how: list[Task | None], ranges: list[tuple[int, int]], ask: Callable[[Ranges], Event], remembered: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_table, "REMEMBER_ALL_UP_TO", remembered)
        together, alone = (a_state(TASKS, how.__getitem__) for _ in range(2))
        before = states(together)
        asked = IntervalSet((min(pair), max(pair)) for pair in ranges)
        handle(together, ask(tuple((min(pair), max(pair)) for pair in ranges)))
        for number in asked:
            handle(alone, ask(((number, number),)))
        assert (
            states(together)
            == states(alone)
            == [_moved(state, ask) if number in asked else state for number, state in enumerate(before)]
        )
        for yard in (together, alone):
            check(yard)
            assert +yard.jobs["j"].tasks.counts == Counter(states(yard))
        assert list(together.jobs["j"].tasks.pending) == list(alone.jobs["j"].tasks.pending)


def _moved(state: State, ask: Callable[[Ranges], Event]) -> State:
    if ask is retry:
        return State.PENDING if state.is_final else state
    return State.CANCELLED if state is State.PENDING else state
