"""Arrays without weight: a million tasks are one object, and only what runs or failed takes memory."""

from __future__ import annotations

import tracemalloc
from collections import deque
from typing import Any

import pytest

from jobyard.engine.handling import handle
from jobyard.engine.job_record import BACKLOG_SECONDS, STUCK_SECONDS
from jobyard.engine.lifecycle import EARLIER_MOST
from jobyard.engine.planner import Planner
from jobyard.engine.saved_state import load, save
from jobyard.engine.yard_state import YardState
from jobyard.model.effects import Launch, Withdraw
from jobyard.model.events import AttemptsFinished, AttemptsStarted, CancelRequested, Finished, RetryRequested, Started
from jobyard.model.job import Reason, State
from jobyard.model.policy import FailurePolicy
from jobyard.model.task import AttemptId, Outcome
from tests.builders import a_group, a_job, a_node, joined, submitted
from tests.unit.engine.driving import Yard, calls_of

MILLION = 1_000_000


def test_a_million_tasks_take_no_memory_until_they_run_and_none_after() -> None:
    yard = Yard(a_node(cpus=4))
    tracemalloc.start()
    try:
        job = yard.submit(a_job(MILLION))
        for _ in range(50):
            yard.finish(*yard.active(job), seconds=0.01)
        assert job.tasks.counts[State.SUCCEEDED] > 500
        assert len(job.tasks.known) == job.tasks.active
        assert not job.tasks.attempts
        yard.apply(CancelRequested(job.id, yard.now))
        yard.withdraw(*yard.active(job))
        yard.history.clear()
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
    assert job.state is State.CANCELLED
    assert not job.tasks.known
    assert job.task(MILLION - 1).state is State.CANCELLED
    assert job.task(MILLION - 1).message == "cancelled by the user"


def test_a_million_cancelled_tasks_are_retried_in_ranges() -> None:
    yard = Yard(a_node(cpus=1))
    job = yard.submit(a_job(MILLION))
    yard.apply(CancelRequested(job.id, yard.now))
    yard.withdraw(*yard.active(job))
    yard.apply(RetryRequested(job.id, ((0, MILLION - 1),), yard.now))
    assert (job.tasks.counts[State.PENDING], job.tasks.counts[State.STARTING]) == (MILLION - 1, 1)
    assert yard.active(job)[0].number == 2  # task 0 had one attempt before
    assert len(job.tasks.known) == 1


def test_only_failed_tasks_are_remembered() -> None:
    yard = Yard(a_node(cpus=1))
    job = yard.submit(a_job(5000))
    for number in range(100):
        yard.finish(*yard.active(job), exit_code=int(number % 10 == 0))
    assert job.tasks.counts[State.FAILED] == 10
    assert len(job.tasks.known) == 10 + job.tasks.active
    assert job.tasks.numbers_in(State.FAILED) == [(n, n) for n in range(0, 100, 10)]
    assert job.tasks.first_failure == 0


def test_small_jobs_remember_every_outcome() -> None:
    yard = Yard()
    job = yard.submit(a_job(3))
    yard.run_to_the_end(job, exit_code=0, peak_memory_mib=7)
    assert [job.task(n).outcome is not None for n in range(3)] == [True] * 3
    assert job.use.peak_memory_mib == 7


def test_a_retry_keeps_the_first_start_and_the_attempts_before_it() -> None:
    yard = Yard()
    job = yard.submit(a_job())
    for code in range(1, 10):
        if job.is_final:
            yard.now += 100
            yard.apply(RetryRequested(job.id, ((0, 0),), yard.now))
        yard.start(*yard.active(job))
        assert (job.times.first_started_at, job.times.started_at) == (100.0, yard.now)
        yard.now += 5
        yard.finish(*yard.active(job), exit_code=code, seconds=5.0)
    task = job.task(0)
    kept = range(9 - EARLIER_MOST, 9)
    assert [(past.number, past.outcome.exit_code) for past in task.earlier] == [(number, number) for number in kept]
    assert (task.attempt, task.outcome and task.outcome.exit_code) == (9, 9)
    rebuilt = load(save(yard.state)).jobs[job.id]
    assert (rebuilt.task(0), rebuilt.times) == (task, job.times)


def test_an_attempt_that_never_began_is_no_earlier_one() -> None:
    yard = Yard()
    job = yard.submit(a_job(retries=3))
    yard.finish(*yard.active(job), exit_code=3)
    yard.withdraw(*yard.active(job))
    yard.finish(*yard.active(job), exit_code=0)
    assert (job.task(0).attempt, [past.number for past in job.task(0).earlier]) == (3, [1])


def test_the_limit_holds_over_all_groups() -> None:
    yard = Yard(a_node(cpus=16))
    job = yard.submit(a_job(groups=(a_group("a", completions=5), a_group("b", completions=5)), limit=3))
    assert job.tasks.active == 3
    yard.run_to_the_end(job)
    assert job.state is State.SUCCEEDED


def test_parallelism_is_per_replica() -> None:
    yard = Yard(a_node(cpus=16))
    job = yard.submit(a_job(groups=(a_group("w", count=3, completions=4, parallelism=2),)))
    places = [job.spec.place_of(attempt.task).replica for attempt in yard.active(job)]
    assert sorted(places) == [0, 0, 1, 1, 2, 2]
    yard.run_to_the_end(job)
    assert job.tasks.counts[State.SUCCEEDED] == 12


def test_parallelism_as_large_as_the_replica_is_no_limit() -> None:
    yard = Yard(a_node(cpus=16))
    job = yard.submit(a_job(groups=(a_group("w", count=3, completions=2, parallelism=2),)))
    assert job.tasks.active == 6


def test_a_group_of_no_tasks_beside_others_is_left_alone() -> None:
    yard = Yard()
    for name in ("a", "c"):
        job = yard.submit(a_job(groups=(a_group(name, count=0, parallelism=1), a_group("b", completions=2))))
        assert [job.spec.label_of(attempt.task) for attempt in yard.active(job)] == ["b/0.0", "b/0.1"]
        yard.run_to_the_end(job)
        assert job.state is State.SUCCEEDED


def test_failures_do_not_stop_an_array() -> None:
    yard = Yard(a_node(cpus=1))
    job = yard.submit(a_job(3))
    yard.run_to_the_end(job, exit_code=1)
    assert job.tasks.counts[State.FAILED] == 3


def test_an_array_can_be_told_to_stop_at_the_first_failure() -> None:
    yard = Yard(a_node(cpus=2))
    job = yard.submit(a_job(9, on_failure=FailurePolicy.STOP))
    first, second = yard.active(job)
    yard.finish(first, exit_code=1)
    assert yard.stopped() == [second]
    yard.finish(second, signal=15)
    assert job.state is State.FAILED
    assert (job.tasks.counts[State.FAILED], job.tasks.counts[State.CANCELLED]) == (1, 8)
    assert "task 0 failed" in job.task(8).message


def test_max_fails_counts_tasks_not_attempts() -> None:
    yard = Yard(a_node(cpus=1))
    job = yard.submit(a_job(5, max_fails=1, retries=1))
    for _ in range(3):
        yard.finish(*yard.active(job), exit_code=1)
    assert job.tasks.counts[State.FAILED] == 1
    assert job.stop is None
    yard.finish(*yard.active(job), exit_code=1)
    assert job.state is State.FAILED
    assert (job.tasks.counts[State.FAILED], job.tasks.counts[State.CANCELLED]) == (2, 3)
    assert "--max-fails: 2 tasks failed, and at most 1 may" in job.task(4).message


def test_a_job_has_succeeded_once_enough_of_its_tasks_have() -> None:
    yard = Yard(a_node(cpus=2))
    job = yard.submit(a_job(9, enough_successes=2))
    yard.finish(yard.active(job)[0], exit_code=1)
    yard.finish(yard.active(job)[0])
    assert (job.stop, yard.stopped()) == (None, [])
    last = yard.active(job)[1]
    yard.finish(yard.active(job)[0])
    assert last in yard.stopped()
    yard.finish(*yard.active(job), signal=15)
    assert job.state is State.SUCCEEDED
    assert (job.tasks.counts[State.SUCCEEDED], job.tasks.counts[State.FAILED]) == (2, 1)
    assert (job.task(8).reason, "which is enough" in job.task(8).message) == (Reason.ENOUGH, True)


def test_the_last_task_may_be_the_one_that_is_enough() -> None:
    yard = Yard(a_node(cpus=1))
    job = yard.submit(a_job(2, enough_successes=1))
    yard.finish(*yard.active(job), exit_code=1)
    yard.finish(*yard.active(job))
    assert job.state is State.SUCCEEDED


@pytest.mark.parametrize("how", [{"exit_code": 0}, {"exit_code": 1}, {"reason": Reason.NODE_LOST}])
def test_a_job_that_ends_softly_starts_no_more_and_lets_run_what_runs(how: dict[str, Any]) -> None:
    yard = Yard(a_node(cpus=2))
    job = yard.submit(a_job(9, max_fails=0, retries=1, retry_delay_seconds=0.0, lets_running_end=True))
    failing, running = yard.active(job)
    yard.start(failing, running)
    yard.finish(failing, exit_code=1)
    (again,) = (attempt for attempt in yard.active(job) if attempt.task == failing.task)
    yard.finish(again, exit_code=1)
    assert yard.stopped() == []
    assert yard.active(job) == [running]
    yard.finish(running, **how)
    assert job.state is State.FAILED
    assert yard.active(job) == []
    assert yard.state.unfinished == {}


def test_short_tasks_get_a_backlog_and_long_ones_do_not() -> None:
    yard = Yard(a_node(cpus=1))
    short, long = yard.submit(a_job(1000)), yard.submit(a_job(1000))
    yard.finish(*yard.active(short), seconds=0.01)
    assert len(yard.active(short)) == short.backlog(0)
    assert 0.8 <= short.backlog(0) * 0.01 / BACKLOG_SECONDS <= 1
    yard.apply(CancelRequested(short.id, yard.now))
    yard.withdraw(*yard.active(short))
    yard.finish(*yard.active(long), seconds=BACKLOG_SECONDS * 2)
    assert len(yard.active(long)) == 1


def test_the_last_tasks_are_shared_out() -> None:
    yard = Yard(a_node(cpus=4))
    job = yard.submit(a_job(12))
    yard.finish(*yard.active(job), seconds=0.001)
    held = [len(record.tasks) for record in job.slots.values()]
    assert len(held) == 4
    assert max(held) <= 2


def test_a_stuck_slot_gives_back_what_waits_and_others_take_it() -> None:
    yard = Yard(a_node(cpus=2))
    job = yard.submit(a_job(40))
    yard.finish(*yard.active(job), seconds=0.05)
    stuck, other = (sorted(record.tasks) for record in job.slots.values())
    assert len(stuck) > 1
    yard.start(*(attempt for attempt in yard.active(job) if attempt.task in (stuck[0], other[0])))
    yard.now += STUCK_SECONDS * 0.9
    yard.finish(*(attempt for attempt in yard.active(job) if attempt.task in other), seconds=0.05)
    yard.now += STUCK_SECONDS * 0.2
    yard.apply()
    (ask,) = yard.found(Withdraw)
    assert [attempt.task for attempt in ask.attempts] == stuck[1:]
    yard.apply()
    assert not yard.found(Withdraw)  # once is enough for a while
    yard.withdraw(*ask.attempts)
    while others := [attempt for attempt in yard.active(job) if attempt.task != stuck[0]]:
        yard.finish(*others, seconds=0.05)
    assert [attempt.task for attempt in yard.active(job)] == [stuck[0]]
    assert [job.task(number).attempt for number in stuck] == [1] + [2] * (len(stuck) - 1)
    yard.run_to_the_end(job)


def test_a_task_that_asks_for_nothing_does_not_open_a_slot_for_each_of_a_million() -> None:
    yard = Yard()
    job = yard.submit(a_job(MILLION, cpus=0))
    assert len(job.slots) == 1000


def test_untouched_cancelled_tasks_know_why() -> None:
    yard = Yard(a_node(cpus=1))
    job = yard.submit(a_job(3, max_fails=0))
    yard.run_to_the_end(job, exit_code=1)
    assert job.task(2).reason is Reason.SIBLING_FAILED
    assert "stopped early by --halt or --max-fails: 1 task failed, and none may" in job.task(2).message


def test_a_task_costs_the_same_in_an_array_of_any_size() -> None:
    """So that no loop over tasks or slots creeps in: calls are counted, for seconds are not the same twice."""
    assert calls_of(lambda: run_an_array(8000)) < 8 * calls_of(lambda: run_an_array(1000)) * 1.1


def run_an_array(tasks: int) -> None:
    state, now = YardState(), 0.0
    planner = Planner(state)
    handle(state, joined(a_node(cpus=16)))
    handle(state, submitted("j", 1, a_job(tasks)))
    waiting: deque[AttemptId] = deque()
    while not state.jobs["j"].is_final:
        for event in planner.decide(now):
            waiting.extend(a for effect in handle(state, event) if isinstance(effect, Launch) for a in effect.attempts)
        now += 0.01
        ended = [waiting.popleft() for _ in range(min(50, len(waiting)))]
        handle(state, AttemptsStarted(tuple(Started(a, now) for a in ended), now))
        handle(state, AttemptsFinished(tuple(Finished(a, Outcome(now - 0.002, now, 0)) for a in ended), now))
