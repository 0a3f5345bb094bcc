"""Ranges and states of tasks in requests to cancel and to retry."""

from __future__ import annotations

import pytest

from jobyard.engine.job_record import JobRecord
from jobyard.errors import NotFound, UserError
from jobyard.model.job import State
from jobyard.server.commands import cancel, retry
from jobyard.wire.requests import CancelJob, RetryJob
from tests.builders import a_job, a_node
from tests.unit.engine.driving import Yard

MANY = 1_000_000


def an_array(tasks: int = 10, *, cpus: int = 2, gang: bool = False) -> tuple[Yard, JobRecord]:
    """The first tasks run, the others wait."""
    yard = Yard(a_node(cpus=cpus))
    job = yard.submit(a_job(tasks, gang=gang, limit=cpus))
    yard.start(*yard.active(job))
    return yard, job


def ask(yard: Yard, command: object, *, job: JobRecord) -> None:
    asked = cancel(job.id, command) if isinstance(command, CancelJob) else retry(job.id, command)  # type: ignore[arg-type]
    yard.apply(*asked(yard.state, yard.now)[0])


def in_state(job: JobRecord, state: State) -> list[tuple[int, int]]:
    return job.tasks.numbers_in(state)


def test_a_range_of_tasks_is_cancelled_and_the_others_go_on() -> None:
    yard, job = an_array()
    ask(yard, CancelJob(("1-3", "8")), job=job)
    assert in_state(job, State.CANCELLED) == [(2, 3), (8, 8)]
    assert [attempt.task for attempt in yard.stopped()] == [1]
    assert job.state is State.RUNNING
    assert not job.stop


def test_a_range_of_a_million_is_one_event_and_no_object() -> None:
    yard, job = an_array(MANY)
    events, _ = cancel(job.id, CancelJob((f"10-{MANY - 1}",)))(yard.state, yard.now)
    assert [getattr(event, "ranges", None) for event in events] == [((10, MANY - 1),)]
    yard.apply(*events)
    assert in_state(job, State.CANCELLED) == [(10, MANY - 1)]
    assert len(job.tasks.known) < 100


@pytest.mark.parametrize(
    ("states", "cancelled", "stopped"),
    [((State.PENDING,), [(2, 9)], []), ((State.STARTING, State.RUNNING), [], [0, 1])],
)
def test_only_tasks_in_a_state_are_cancelled(
    states: tuple[State, ...], cancelled: list[tuple[int, int]], stopped: list[int]
) -> None:
    yard, job = an_array()
    ask(yard, CancelJob(states=states), job=job)
    assert in_state(job, State.CANCELLED) == cancelled
    assert [attempt.task for attempt in yard.stopped()] == stopped


def test_a_job_whose_last_tasks_are_cancelled_ends() -> None:
    yard, job = an_array(4)
    yard.finish(*yard.active(job), exit_code=0)
    ask(yard, CancelJob(("2-3",)), job=job)
    yard.finish(*yard.stopped(), signal=15)
    assert job.is_final
    assert in_state(job, State.CANCELLED) == [(2, 3)]


def test_only_what_failed_is_tried_again_and_not_what_was_cancelled() -> None:
    yard, job = an_array(4, cpus=4)
    first, second, *others = yard.active(job)
    yard.finish(first, exit_code=1)
    ask(yard, CancelJob(("1",)), job=job)
    yard.finish(second, signal=15)
    yard.finish(*others, exit_code=0)
    ask(yard, RetryJob(states=(State.FAILED,)), job=job)
    assert [attempt.task for attempt in yard.active(job)] == [0]
    assert in_state(job, State.CANCELLED) == [(1, 1)]
    yard.finish(*yard.active(job), exit_code=0)
    ask(yard, RetryJob(("0-3",)), job=job)
    assert len(yard.active(job)) == 4


def test_what_cannot_be_meant_is_refused_and_nothing_is_done() -> None:
    yard, job = an_array()
    refusals: list[tuple[object, str]] = [
        (CancelJob(("3-99",)), "has no task '99'; its tasks are 0 to 9"),
        (CancelJob(("5-3",)), "comes before"),
        (CancelJob(states=(State.FAILED,)), f"job {job.number} has no failed task"),
        (CancelJob(("0-1",), states=(State.PENDING,)), "has no pending task among these"),
        (RetryJob(("0-3",)), f"task 0 of job {job.number} is running; only a task that ended can be retried"),
        (RetryJob(("5-6",)), f"task 5 of job {job.number} is pending; only"),
        (RetryJob(states=(State.FAILED,)), "has no failed task"),
    ]
    for asked, says in refusals:
        with pytest.raises((UserError, NotFound)) as refused:
            ask(yard, asked, job=job)
        assert says in str(refused.value)


def test_one_task_of_a_gang_is_refused() -> None:
    yard, job = an_array(2, gang=True)
    for asked in (CancelJob(("1",)), CancelJob(states=(State.RUNNING,))):
        with pytest.raises(UserError, match="is a gang: its tasks stop together; cancel the whole job"):
            ask(yard, asked, job=job)
    ask(yard, CancelJob(), job=job)
    assert job.state is State.STOPPING
