"""A gang starts, stops and begins again together."""

from __future__ import annotations

import pytest

from jobyard.engine.job_record import JobRecord
from jobyard.model.events import CancelRequested, NodeLost, RetryRequested
from jobyard.model.job import Reason, State
from jobyard.model.policy import FailurePolicy
from tests.builders import a_group, a_job, a_node, joined
from tests.unit.engine.driving import Yard


def test_it_starts_all_at_once_or_not_at_all() -> None:
    yard = Yard(a_node(cpus=2))
    gang = yard.submit(a_job(3, gang=True))
    assert gang.state is State.PENDING
    assert not gang.slots
    assert "start together" in yard.planner.waits[gang.id].sentence
    yard.apply(joined(a_node("more", cpus=1)))
    assert len(yard.launched()) == 3


def test_limits_do_not_tear_it_apart() -> None:
    yard = Yard(a_node(cpus=8))
    gang = yard.submit(a_job(groups=(a_group(count=2, completions=3, parallelism=1),), gang=True, limit=2))
    assert gang.tasks.counts[State.STARTING] == 6
    yard.run_to_the_end(gang)
    assert gang.state is State.SUCCEEDED


def test_one_failure_stops_all() -> None:
    yard = Yard()
    gang = yard.submit(a_job(3, gang=True))
    first, *others = yard.active(gang)
    yard.start(first, *others)
    yard.finish(first, exit_code=1)
    assert yard.stopped() == others
    yard.finish(*others, signal=15)
    assert gang.state is State.FAILED
    assert gang.tasks.first_failure == 0
    assert gang.task(1).reason is Reason.SIBLING_FAILED


def test_retries_count_restarts_of_the_whole() -> None:
    yard = Yard()
    gang = yard.submit(a_job(2, gang=True, retries=1))
    for attempt in (1, 2):
        first, second = yard.active(gang)
        assert (first.number, second.number) == (attempt, attempt)
        yard.start(first, second)
        yard.finish(first, exit_code=0)
        yard.finish(second, exit_code=1)
    assert gang.state is State.FAILED
    assert gang.tasks.counts == {**gang.tasks.counts, State.SUCCEEDED: 1, State.FAILED: 1}


def test_a_lost_node_restarts_all_of_it() -> None:
    yard = Yard(a_node("a", cpus=1), a_node("b", cpus=1))
    gang = yard.submit(a_job(2, gang=True))
    yard.start(*yard.active(gang))
    yard.apply(NodeLost("a", yard.now))
    (left,) = yard.stopped()
    assert gang.tasks.counts[State.PENDING] == 1
    yard.finish(left, signal=9)
    assert gang.state is State.PENDING
    yard.apply(joined(a_node("a", cpus=1)))
    assert [attempt.number for attempt in yard.launched()] == [2, 2]


def test_a_task_that_an_agent_gives_back_restarts_all_of_it() -> None:
    yard = Yard(a_node("a", cpus=1), a_node("b", cpus=1))
    gang = yard.submit(a_job(2, gang=True))
    first, second = yard.active(gang)
    yard.start(first)
    yard.withdraw(second)
    assert yard.stopped() == [first]
    yard.finish(first, signal=9)
    assert [attempt.number for attempt in yard.active(gang)] == [2, 2]
    assert gang.tasks.gang_failures == 0


def test_cancelling_one_task_cancels_all() -> None:
    yard = Yard()
    gang = yard.submit(a_job(2, gang=True))
    yard.apply(CancelRequested(gang.id, yard.now, (1,)))
    yard.withdraw(*yard.stopped())
    assert gang.state is State.CANCELLED


def test_it_is_cancelled_while_it_restarts() -> None:
    yard = Yard()
    gang = yard.submit(a_job(3, gang=True, retries=5))
    first, second, third = yard.active(gang)
    yard.start(first, second, third)
    yard.finish(first, exit_code=1)
    yard.finish(second, signal=9)
    yard.apply(CancelRequested(gang.id, yard.now))
    yard.finish(third, signal=9)
    assert gang.state is State.CANCELLED
    assert not yard.state.slots


def test_retrying_a_part_of_it_runs_all_of_it() -> None:
    yard = Yard()
    gang = yard.submit(a_job(2, gang=True, on_failure=FailurePolicy.CONTINUE))
    first, second = yard.active(gang)
    yard.finish(first, exit_code=1)
    yard.apply(RetryRequested(gang.id, ((0, 0),), yard.now))
    assert not yard.launched()  # not while the other one runs
    yard.finish(second)
    yard.apply(RetryRequested(gang.id, ((0, 0),), yard.now))
    assert [attempt.number for attempt in yard.launched()] == [2, 2]


def test_no_slot_of_a_gang_asks_how_many_slots_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []  # it has thousands, and where it has several groups, each answer counts them all
    monkeypatch.setattr(JobRecord, "slots_of", lambda job, group: asked.append(group))
    yard = Yard(a_node(cpus=8))
    yard.submit(a_job(groups=(a_group("a", count=3), a_group("b", count=5)), gang=True))
    assert (len(yard.launched()), asked) == (8, [])
