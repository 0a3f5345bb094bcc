"""How long a failed task waits before its next attempt, what ends the wait, and who does not wait."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from jobyard.engine import saved_state
from jobyard.engine.handling import handle
from jobyard.engine.invariants import check
from jobyard.engine.job_record import JobRecord
from jobyard.engine.planner import Planner
from jobyard.engine.yard_state import YardState
from jobyard.model.events import (
    CancelRequested,
    JobQuarantined,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    RetryDelayPassed,
    RetryRequested,
)
from jobyard.model.job import JobSpec, Reason, State
from jobyard.model.policy import RunPolicy
from jobyard.model.training import Training
from tests.builders import a_cluster_node, a_job, a_node, joined
from tests.unit.engine.driving import Yard, state_of
from tests.unit.engine.world import World


def fail(yard: Yard, job: JobRecord, times: int = 1) -> None:
    """All that runs of it, so often in a row; only the first time there is no delay."""
    for _ in range(times):
        yard.finish(*yard.active(job), exit_code=1)


def a_delayed(spec: JobSpec | None = None) -> tuple[Yard, JobRecord]:
    """A yard with a job whose one task waits a second."""
    yard = Yard()
    job = yard.submit(spec or a_job(retries=9))
    fail(yard, job, 2)
    assert list(job.tasks.delayed) == [0]
    return yard, job


def pass_time(yard: Yard, seconds: float) -> None:
    yard.now += seconds
    yard.apply()


def test_each_failure_doubles_the_delay_up_to_five_minutes() -> None:
    assert [RunPolicy().retry_delay(failures) for failures in (0, 1, 2, 3, 9, 10, 10**6)] == [0, 1, 2, 4, 256, 300, 300]
    ten = RunPolicy(retry_delay_seconds=10.0)
    assert [ten.retry_delay(failures) for failures in (0, 1, 5, 10**6)] == [10, 20, 300, 300]
    assert RunPolicy(retry_delay_seconds=3600.0).retry_delay(7) == 3600, "never less than what was asked for"
    assert RunPolicy(retry_delay_seconds=0.0).retry_delay(7) == 0


def test_a_task_that_failed_again_is_not_tried_before_its_delay_is_over() -> None:
    yard, job = a_delayed()
    failed_at = yard.now
    assert not yard.state.slots, "it holds no room while it waits"
    assert yard.planner.next_deadline() == failed_at + 1
    pass_time(yard, 0.9)
    assert not yard.active(job)
    yard.now = failed_at + 1
    yard.apply()
    assert job.task(0).attempt == 3
    fail(yard, job)
    assert yard.planner.next_deadline() == yard.now + 2


def test_the_first_retry_is_at_once_unless_a_delay_was_asked_for() -> None:
    yard = Yard()
    at_once, later = yard.submit(a_job(retries=1)), yard.submit(a_job(retries=1, retry_delay_seconds=5.0))
    fail(yard, at_once)
    fail(yard, later)
    assert (len(yard.active(at_once)), len(yard.active(later))) == (1, 0)
    pass_time(yard, 5)
    assert len(yard.active(later)) == 1


def test_without_a_delay_no_attempt_waits() -> None:
    yard = Yard()
    job = yard.submit(a_job(retries=50, retry_delay_seconds=0.0))
    yard.run_to_the_end(job, exit_code=1)
    assert job.task(0).attempt == 51


def test_a_failing_task_of_an_array_lets_the_others_go_first() -> None:
    yard = Yard(a_node(cpus=1))
    job = yard.submit(a_job(3, retries=9))
    fail(yard, job, 2)
    assert [attempt.task for attempt in yard.active(job)] == [1]
    yard.finish(*yard.active(job))
    pass_time(yard, 1)
    yard.finish(*yard.active(job))
    assert [attempt.task for attempt in yard.active(job)] == [0]
    assert (job.tasks.counts[State.SUCCEEDED], job.task(0).attempt) == (2, 3)


def test_each_task_has_a_delay_of_its_own() -> None:
    yard = Yard(a_node(cpus=2))
    job = yard.submit(a_job(2, retries=9))
    first, second = yard.active(job)
    yard.finish(first, exit_code=1)
    yard.finish(yard.active(job)[0], exit_code=1)
    assert yard.active(job) == [second]
    yard.finish(second, exit_code=1)
    assert [attempt.task for attempt in yard.active(job)] == [1], "its first failure"
    assert yard.planner.next_deadline() == pytest.approx(yard.now - 0.001 + 1)


def test_a_gang_waits_as_one() -> None:
    yard = Yard()
    gang = yard.submit(a_job(2, gang=True, retries=9))
    for attempt in (1, 2):
        first, second = yard.active(gang)
        assert (first.number, second.number) == (attempt, attempt)
        yard.start(first, second)
        yard.finish(first, exit_code=1)
        failed_at = yard.now
        yard.finish(second, signal=15)
    assert (state_of(gang), yard.planner.next_deadline()) == (State.PENDING, failed_at + 1)
    assert not yard.state.slots
    pass_time(yard, 1)
    assert [attempt.number for attempt in yard.active(gang)] == [3, 3]


def test_what_is_no_failure_of_the_task_does_not_wait() -> None:
    yard, job = a_delayed(a_job(retries=9, training=Training(epochs=5)))
    pass_time(yard, 1)
    yard.start(*yard.active(job))
    yard.apply(NodeLost("here", yard.now), joined(a_node("there")))
    assert [attempt.number for attempt in yard.active(job)] == [4]
    yard.finish(*yard.active(job), reason=Reason.NODE_LOST)
    assert [attempt.number for attempt in yard.active(job)] == [5]
    yard.withdraw(*yard.active(job))
    assert [attempt.number for attempt in yard.active(job)] == [6]
    assert job.task(0).failures == 2


def test_what_ran_out_of_memory_is_tried_with_more_at_once() -> None:
    yard, job = a_delayed(a_job(retries=9, mem=1000))
    pass_time(yard, 1)
    yard.finish(*yard.active(job), signal=9, reason=Reason.OUT_OF_MEMORY, peak_memory_mib=1000)
    assert [attempt.number for attempt in yard.active(job)] == [4]
    assert job.memory.memory_mib > 1000


def test_a_retry_by_hand_starts_at_once_and_keeps_the_count() -> None:
    yard, job = a_delayed()
    yard.apply(RetryRequested(job.id, ((0, 0),), yard.now))
    assert [attempt.number for attempt in yard.active(job)] == [3]
    fail(yard, job)
    assert yard.planner.next_deadline() == yard.now + 2


def test_a_retry_by_hand_of_a_gang_that_waits_starts_it_at_once() -> None:
    yard = Yard()
    gang = yard.submit(a_job(2, gang=True, retries=9, retry_delay_seconds=60.0))
    fail(yard, gang)
    assert not yard.active(gang)
    yard.apply(RetryRequested(gang.id, ((0, 1),), yard.now))
    assert [attempt.number for attempt in yard.active(gang)] == [2, 2]


def test_a_task_that_waits_can_be_cancelled_and_retried() -> None:
    yard, job = a_delayed()
    yard.apply(CancelRequested(job.id, yard.now))
    assert (state_of(job), yard.planner.next_deadline()) == (State.CANCELLED, None)
    yard.apply(RetryRequested(job.id, ((0, 0),), yard.now))
    assert state_of(job) is State.STARTING


def test_one_of_several_tasks_that_wait_can_be_cancelled() -> None:
    yard = Yard()
    job = yard.submit(a_job(2, retries=9))
    fail(yard, job, 2)
    yard.apply(CancelRequested(job.id, yard.now, (0,)))
    assert (list(job.tasks.delayed), job.tasks.numbers_in(State.PENDING)) == ([1], [(1, 1)])


def test_after_a_restart_a_task_waits_on_and_not_anew() -> None:
    yard, job = a_delayed()
    until = yard.planner.next_deadline()
    yard.now += 0.5
    replayed = YardState()
    for event in yard.history:
        handle(replayed, event)
    for state in (replayed, saved_state.load(saved_state.save(yard.state))):
        planner = Planner(state)
        assert (planner.next_deadline(), list(planner.decide(yard.now))) == (until, [])
        assert planner.wants.request_of(state.jobs[job.id]) is None


def test_nothing_of_a_job_in_quarantine_is_tried_again() -> None:
    yard, job = a_delayed()
    yard.apply(JobQuarantined(job.id, yard.now, "an error"))
    assert yard.planner.next_deadline() is None
    pass_time(yard, 60)
    assert list(job.tasks.delayed) == [0]


def test_one_event_is_enough_for_all_that_waited_long_enough() -> None:
    yard = Yard(a_node(cpus=64))
    job = yard.submit(a_job(50, retries=9, retry_delay_seconds=7.0))
    fail(yard, job)
    known = len(yard.history)
    pass_time(yard, 7)
    assert [type(event) for event in yard.history[known:]].count(RetryDelayPassed) == 1
    assert len(yard.active(job)) == 50


def test_kubernetes_delays_what_it_tries_again_itself_and_the_yard_the_rest() -> None:
    yard = Yard(a_cluster_node(cpus=8))
    array = yard.submit(a_job(2, retries=9, cluster="prod"))
    training = yard.submit(a_job(1, retries=9, cluster="prod", training=Training(epochs=5)))
    fail(yard, array, 3)
    fail(yard, training, 2)
    assert (len(yard.active(array)), len(yard.active(training))) == (2, 0)
    pass_time(yard, 1)
    assert len(yard.active(training)) == 1


def test_a_journal_of_a_yard_without_delays_is_still_read() -> None:
    """Its rows say that the task was assigned: that counts."""
    yard = Yard()
    job = yard.submit(a_job(retries=9, retry_delay_seconds=0.0))
    fail(yard, job, 5)
    state = YardState()
    for event in yard.history:
        if isinstance(event, JobSubmitted):
            event = replace(event, spec=a_job(retries=9))
        handle(state, event)
    assert (state.jobs[job.id].task(0).attempt, len(state.jobs[job.id].tasks.delayed)) == (6, 0)
    check(state)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_to_tasks_that_wait_a_restart_loses_no_delay(seed: int) -> None:
    """Failures, restarts, retries by hand, cancels and lost nodes; the world checks the books and each replay."""
    chance, world = Random(seed), World()
    world.apply(NodeJoined(a_node("n0", cpus=3), world.now))
    for number in range(1, 7):
        delay = chance.choice([None, 0.0, 0.7, 40.0])
        spec = a_job(1 + number % 3, gang=number > 3, retries=chance.choice([4, 9]), retry_delay_seconds=delay)
        world.apply(JobSubmitted(f"j{number}", number, spec, world.now))
    for _ in range(60):
        world.exchange()
        for agent in list(world.agents.values()):
            for attempt in list(agent.running.values()):
                world.end("n0", attempt, exit_code=chance.choice([0] + 9 * [1]))
        world.exchange()
        world.now += chance.choice([0.0, 0.3, 2.0])
        job = world.yard.jobs[f"j{chance.randrange(1, 7)}"]
        match chance.randrange(16):
            case 0:
                world.apply(CancelRequested(job.id, world.now, (chance.randrange(job.spec.size),)))
            case 1:
                world.apply(RetryRequested(job.id, ((0, job.spec.size - 1),), world.now))
            case 2:
                world.lose("n0", processes_too=True)
                world.apply(NodeJoined(a_node("n0", cpus=3), world.now))
            case 3 | 4:
                world.save()
            case 5 | 6 | 7:
                world.restart(chance.choice([None, *world.bases]))
            case _:
                world.apply()
    assert sum("RetryDelayPassed" in row for row in world.journal) > 5, "it says nothing"
    world.settle()
    world.check_ends()
    world.restart()


def test_between_two_starts_of_a_job_its_delay_passes() -> None:
    yard = Yard(a_node(cpus=4))
    job = yard.submit(a_job(3, start_delay_seconds=2.0))
    assert len(yard.active(job)) == 1
    assert yard.planner.next_deadline() == 102.0
    yard.now = 101.9
    yard.apply()
    assert len(yard.active(job)) == 1
    yard.now = 102.0
    yard.apply()
    assert len(yard.active(job)) == 2
    yard.finish(*yard.active(job), seconds=0.001)
    assert yard.active(job) == [], "a slot that is free does not start the next one sooner"
    yard.now = 104.0
    yard.apply()
    assert [attempt.task for attempt in yard.active(job)] == [2]
    yard.finish(*yard.active(job))
    assert job.state is State.SUCCEEDED
    assert yard.planner.next_deadline() is None


def test_a_delay_that_has_passed_wakes_nobody_while_there_is_no_room() -> None:
    yard = Yard(a_node(cpus=1))
    job = yard.submit(a_job(2, start_delay_seconds=2.0))
    yard.now = 103.0
    yard.apply()
    assert len(yard.active(job)) == 1
    assert yard.planner.next_deadline() is None
    yard.finish(*yard.active(job))
    assert len(yard.active(job)) == 1


def test_a_clock_that_is_put_back_delays_no_start_until_it_has_caught_up() -> None:
    yard = Yard(a_node(cpus=4))
    job = yard.submit(a_job(3, start_delay_seconds=2.0))
    yard.now -= 86_400.0
    yard.apply()
    assert len(yard.active(job)) == 2
    assert yard.planner.next_deadline() == yard.now + 2.0
    yard.now += 1.9
    yard.apply()
    assert len(yard.active(job)) == 2


def test_the_next_start_survives_a_restart() -> None:
    yard = Yard(a_node(cpus=4))
    job = yard.submit(a_job(3, start_delay_seconds=2.0))
    again = saved_state.load(saved_state.save(yard.state)).jobs[job.id]
    assert again.times.next_start_at == job.times.next_start_at == 102.0


def test_a_gang_starts_together_whatever_its_delay() -> None:
    yard = Yard(a_node(cpus=4))
    job = yard.submit(a_job(3, gang=True, start_delay_seconds=2.0))
    assert len(yard.active(job)) == 3
