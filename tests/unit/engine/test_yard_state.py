"""One story each: cancel, retry, dependencies, deadlines, nodes, and slots that make way."""

from __future__ import annotations

from jobyard.engine.handling import handle
from jobyard.engine.job_record import STUCK_SECONDS
from jobyard.model.effects import CloseSlot, Stop, Withdraw
from jobyard.model.events import (
    CancelRequested,
    DeadlinePassed,
    NodeLost,
    NodeMeasured,
    PriorityChanged,
    RetryRequested,
)
from jobyard.model.job import Dependency, Reason, State
from jobyard.model.node import Foreign
from jobyard.model.task import AttemptId
from tests.builders import a_group, a_job, a_node, joined
from tests.unit.engine.driving import Yard, state_of

# -- cancel ------------------------------------------------------------------------------------------------------------


def test_a_job_cancelled_while_it_starts_never_runs() -> None:
    yard = Yard()
    job = yard.submit(a_job(1, grace_seconds=5))
    (attempt,) = yard.active(job)
    assert yard.apply(CancelRequested(job.id, yard.now)) == [Stop("here", (attempt,), 5)]
    assert state_of(job) is State.STOPPING
    yard.withdraw(attempt)
    assert state_of(job) is State.CANCELLED
    assert yard.found(CloseSlot)
    assert not yard.state.slots


def test_cancelling_again_with_force_hurries_it() -> None:
    yard = Yard()
    job = yard.submit(a_job(2))
    yard.start(*yard.active(job))
    yard.apply(CancelRequested(job.id, yard.now))
    yard.apply(CancelRequested(job.id, yard.now, force=True))
    (stop,) = yard.found(Stop)
    assert (len(stop.attempts), stop.grace_seconds) == (2, 0.0)


def test_cancelling_single_tasks_leaves_the_rest() -> None:
    yard = Yard(a_node(cpus=1))
    job = yard.submit(a_job(3))
    yard.apply(CancelRequested(job.id, yard.now, (0, 2, 2, 99)))
    yard.finish(*yard.active(job), signal=15)
    assert [job.task(n).state for n in range(3)] == [State.CANCELLED, State.STARTING, State.CANCELLED]
    yard.run_to_the_end(job)
    assert state_of(job) is State.CANCELLED


def test_a_node_lost_while_a_task_stops_leaves_it_cancelled() -> None:
    yard = Yard()
    job = yard.submit(a_job(1))
    yard.start(*yard.active(job))
    yard.apply(CancelRequested(job.id, yard.now))
    yard.apply(NodeLost("here", yard.now))
    assert state_of(job) is State.CANCELLED


def test_an_attempt_that_failed_before_the_cancel_is_remembered() -> None:
    yard = Yard(a_node(cpus=1))
    job = yard.submit(a_job(2, retries=3))
    yard.finish(*yard.active(job), exit_code=7)
    yard.finish(*yard.active(job), exit_code=7)  # the other one, or the same again: one of them waits
    yard.apply(CancelRequested(job.id, yard.now))
    yard.withdraw(*yard.active(job))
    outcomes = [job.task(number).outcome for number in range(2)]
    assert any(outcome and outcome.exit_code == 7 for outcome in outcomes)


# -- retry -------------------------------------------------------------------------------------------------------------


def test_a_retried_task_gets_a_new_attempt_number_and_a_fresh_count_of_retries() -> None:
    yard = Yard()
    job = yard.submit(a_job(1, retries=1))
    yard.run_to_the_end(job, exit_code=1)
    assert job.task(0).attempt == 2
    yard.apply(RetryRequested(job.id, ((0, 0),), yard.now))
    assert yard.launched() == [AttemptId(job.id, 0, 3)]
    yard.finish(*yard.active(job), exit_code=1)
    assert job.task(0).state is State.STARTING
    yard.finish(*yard.active(job), exit_code=0)
    assert state_of(job) is State.SUCCEEDED


def test_attempt_numbers_are_never_used_again_after_cancel_and_retry() -> None:
    yard = Yard()
    for size in (3, 2000):
        job = yard.submit(a_job(size, limit=1))
        seen = set(yard.active(job))
        for _ in range(3):
            yard.apply(CancelRequested(job.id, yard.now))
            yard.withdraw(*yard.active(job))
            yard.apply(RetryRequested(job.id, ((0, size - 1),), yard.now))
            assert not seen & set(yard.active(job))
            seen |= set(yard.active(job))
        yard.apply(CancelRequested(job.id, yard.now))
        yard.withdraw(*yard.active(job))


def test_retrying_one_task_of_a_running_job_leaves_the_rest() -> None:
    yard = Yard(a_node(cpus=1))
    job = yard.submit(a_job(3))
    yard.finish(*yard.active(job), exit_code=1)
    yard.apply(RetryRequested(job.id, ((0, 0),), yard.now))
    assert job.tasks.counts[State.FAILED] == 0
    assert job.tasks.first_failure is None
    yard.run_to_the_end(job)
    assert state_of(job) is State.SUCCEEDED


def test_retrying_some_failures_keeps_the_first_of_the_others() -> None:
    yard = Yard()
    job = yard.submit(a_job(3))
    yard.run_to_the_end(job, exit_code=1)
    yard.apply(RetryRequested(job.id, ((0, 0),), yard.now))
    assert job.tasks.first_failure == 1


def test_a_job_that_is_stopping_cannot_be_retried_yet() -> None:
    yard = Yard(a_node(cpus=1))
    job = yard.submit(a_job(3))
    yard.start(*yard.active(job))
    yard.apply(CancelRequested(job.id, yard.now))
    yard.apply(RetryRequested(job.id, ((0, 2),), yard.now))
    assert state_of(job) is State.STOPPING
    yard.finish(*yard.active(job), signal=15)
    assert state_of(job) is State.CANCELLED


def test_retrying_nothing_changes_nothing() -> None:
    yard = Yard()
    job = yard.submit(a_job(1))
    yard.run_to_the_end(job)
    yard.apply(RetryRequested(job.id, (), yard.now))
    assert job.is_final
    assert job.times.finished_at is not None


# -- dependencies ------------------------------------------------------------------------------------------------------


def test_it_waits_for_what_it_depends_on() -> None:
    yard = Yard()
    first = yard.submit(a_job(1))
    second = yard.submit(a_job(1, after=(Dependency(first.id),)))
    assert yard.state.waits_for(second) == [first.id]
    assert state_of(second) is State.PENDING
    yard.run_to_the_end(first)
    assert state_of(second) is State.STARTING


def test_it_is_cancelled_when_what_it_needs_fails_and_so_are_those_behind_it() -> None:
    yard = Yard()
    first = yard.submit(a_job(1))
    second = yard.submit(a_job(2, after=(Dependency(first.id),)))
    third = yard.submit(a_job(1, after=(Dependency(second.id),)))
    anyway = yard.submit(a_job(1, after=(Dependency(second.id, needs_success=False),)))
    yard.run_to_the_end(first, exit_code=1)
    assert (second.state, third.state) == (State.CANCELLED, State.CANCELLED)
    assert second.task(0).reason is Reason.DEPENDENCY
    assert state_of(anyway) is State.STARTING


def test_retrying_both_makes_the_second_wait_for_the_first_again() -> None:
    yard = Yard()
    first = yard.submit(a_job(1))
    second = yard.submit(a_job(1, after=(Dependency(first.id),)))
    yard.run_to_the_end(first, exit_code=1)
    yard.apply(RetryRequested(first.id, ((0, 0),), yard.now))
    yard.apply(RetryRequested(second.id, ((0, 0),), yard.now))
    assert (first.state, second.state) == (State.STARTING, State.PENDING)
    yard.run_to_the_end(first)
    yard.run_to_the_end(second)
    assert state_of(second) is State.SUCCEEDED


def test_retrying_only_the_second_cancels_it_again_with_the_reason() -> None:
    yard = Yard()
    first = yard.submit(a_job(1))
    second = yard.submit(a_job(1, after=(Dependency(first.id),)))
    yard.run_to_the_end(first, exit_code=1)
    yard.apply(RetryRequested(second.id, ((0, 0),), yard.now))
    assert state_of(second) is State.CANCELLED
    assert second.stop is not None
    assert second.stop[0] is Reason.DEPENDENCY


def test_a_job_that_has_begun_is_not_held_up_by_a_retry_of_the_one_before() -> None:
    yard = Yard(a_node(cpus=1))
    first = yard.submit(a_job(1))
    second = yard.submit(a_job(2, after=(Dependency(first.id),)))
    yard.run_to_the_end(first)
    yard.start(*yard.active(second))
    yard.apply(RetryRequested(first.id, ((0, 0),), yard.now))
    assert yard.state.waits_for(second) == []
    yard.finish(*yard.active(second))
    yard.run_to_the_end(first, exit_code=1)
    yard.run_to_the_end(second)
    assert state_of(second) is State.SUCCEEDED


# -- deadlines ---------------------------------------------------------------------------------------------------------


def test_a_deadline_stops_the_job_and_it_has_failed() -> None:
    yard = Yard(a_node(cpus=1))
    job = yard.submit(a_job(2, deadline_seconds=60))
    assert yard.planner.next_deadline() is None
    yard.start(*yard.active(job))
    assert yard.planner.next_deadline() == yard.now + 60
    yard.now += 60
    yard.apply()
    yard.finish(*yard.stopped(), signal=15)
    assert state_of(job) is State.FAILED
    assert job.task(0).reason is Reason.TIMEOUT


def test_a_deadline_passes_while_nothing_runs() -> None:
    yard = Yard()
    job = yard.submit(a_job(1, deadline_seconds=60, retries=9))
    yard.start(*yard.active(job))
    yard.apply(NodeLost("here", yard.now))
    yard.now += 61
    yard.apply()
    assert state_of(job) is State.FAILED


def test_after_a_retry_the_deadline_counts_afresh() -> None:
    yard = Yard()
    job = yard.submit(a_job(1, deadline_seconds=60))
    yard.start(*yard.active(job))
    yard.now += 61
    yard.apply()
    yard.finish(*yard.active(job), signal=15)
    yard.apply(RetryRequested(job.id, ((0, 0),), yard.now))
    assert state_of(job) is State.STARTING
    yard.run_to_the_end(job)
    assert state_of(job) is State.SUCCEEDED


def test_a_deadline_of_a_job_that_has_ended_means_nothing() -> None:
    yard = Yard()
    job = yard.submit(a_job(1))
    yard.run_to_the_end(job)
    yard.apply(DeadlinePassed(job.id, yard.now))
    assert state_of(job) is State.SUCCEEDED


# -- nodes -------------------------------------------------------------------------------------------------------------


def test_tasks_of_a_lost_node_run_elsewhere_and_late_words_do_not_count() -> None:
    yard = Yard(a_node("a", cpus=1), a_node("b", cpus=1))
    job = yard.submit(a_job(2))
    yard.start(*yard.active(job))
    lost = next(
        attempt for attempt in yard.active(job) if job.slots[job.task(attempt.task).slot].slot.placement.node == "a"
    )
    yard.apply(NodeLost("a", yard.now))
    assert job.task(lost.task).reason is Reason.NODE_LOST
    yard.finish(lost, exit_code=0)
    yard.withdraw(lost)
    assert job.task(lost.task).state is State.PENDING
    assert job.tasks.counts[State.SUCCEEDED] == 0
    yard.run_to_the_end(job)
    assert job.task(lost.task).attempt == 2


def test_what_others_use_is_counted() -> None:
    yard = Yard(a_node(cpus=2))
    yard.apply(NodeMeasured("here", Foreign(cpu_millis=1500, holders=("python (pid 7)",)), yard.now))
    job = yard.submit(a_job(1))
    assert state_of(job) is State.PENDING
    assert "python (pid 7)" in yard.planner.waits[job.id].sentence
    yard.apply(NodeMeasured("here", Foreign(), yard.now))
    assert state_of(job) is State.STARTING


# -- making way --------------------------------------------------------------------------------------------------------


def test_slots_of_a_later_job_make_way_and_are_fed_again_afterwards() -> None:
    yard = Yard(a_node(cpus=2))
    low = yard.submit(a_job(100))
    yard.finish(*yard.active(low), seconds=0.05)
    assert len(yard.active(low)) > 2
    high = yard.submit(a_job(1, cpus=2, priority=1))
    given_back = [attempt for effect in yard.found(Withdraw) for attempt in effect.attempts]
    yard.start(*(attempt for attempt in yard.active(low) if attempt not in given_back))
    running = [min(record.tasks) for record in low.slots.values()]
    yard.withdraw(*(attempt for attempt in given_back if attempt.task not in running))
    yard.finish(*yard.active(low), seconds=0.05)
    assert (high.state, low.tasks.active) == (State.STARTING, 0)
    yard.run_to_the_end(high)
    assert low.tasks.active > 0
    yard.run_to_the_end(low, exit_code=0)


def test_when_the_one_ahead_goes_away_slots_are_fed_again() -> None:
    yard = Yard(a_node(cpus=2))
    low = yard.submit(a_job(10))
    high = yard.submit(a_job(1, cpus=2, priority=1))
    yard.apply(CancelRequested(high.id, yard.now, (0,)))
    first, _ = yard.active(low)
    yard.finish(first)
    assert len(yard.active(low)) == 2


def test_a_change_of_priority_changes_who_is_next() -> None:
    yard = Yard(a_node(cpus=1))
    running, second, third = (yard.submit(a_job(1)) for _ in range(3))
    yard.apply(PriorityChanged(third.id, 5, yard.now))
    yard.run_to_the_end(running)
    assert (second.state, third.state) == (State.PENDING, State.STARTING)


def test_a_large_task_is_not_starved_by_a_stream_of_small_ones() -> None:
    yard = Yard(a_node(cpus=4))
    yard.submit(a_job(2))
    large = yard.submit(a_job(1, cpus=4))
    for _ in range(20):
        small = yard.submit(a_job(1))
        assert state_of(small) is State.PENDING
        assert yard.planner.waits[small.id].reason in (Reason.PRIORITY, Reason.RESOURCES)
    yard.finish(*yard.active(yard.state.jobs["j1"]))
    assert state_of(large) is State.STARTING


def test_decisions_that_nobody_took_are_proposed_again() -> None:
    yard = Yard(a_node(cpus=4))
    job = yard.submit(a_job(8))
    yard.now += STUCK_SECONDS
    # A driver that takes one decision and leaves the rest for the next round.
    for attempt in yard.active(job):
        yard.state.changes.slots[job.task(attempt.task).slot] = None
    decisions = yard.planner.decide(yard.now)
    for event in decisions:
        handle(yard.state, event)
        break
    decisions.close()  # type: ignore[attr-defined]
    yard.run_to_the_end(job)


def test_several_groups_each_get_their_own_room() -> None:
    yard = Yard(a_node(cpus=8, gpus=1))
    job = yard.submit(a_job(groups=(a_group("cpu", completions=2, cpus=2), a_group("gpu", completions=2, gpus=1))))
    assert [job.spec.label_of(attempt.task) for attempt in yard.active(job)] == ["cpu/0.0", "cpu/0.1", "gpu/0.0"]
    yard.run_to_the_end(job)


def test_a_job_may_be_placed_on_a_named_node_only() -> None:
    yard = Yard(a_node("a"), a_node("b"))
    job = yard.submit(a_job(1, on="b"))
    assert [record.slot.placement.node for record in job.slots.values()] == ["b"]
    yard.apply(NodeLost("b", yard.now))
    assert yard.planner.waits[job.id].reason is Reason.NODE_DOWN
    yard.apply(joined(a_node("b")))
    assert state_of(job) is State.STARTING
