"""Where very many jobs wait, one more of them, or one less, is as much work as where few do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import Mock

import pytest

from jobyard.engine import planner as planning
from jobyard.engine.handling import handle
from jobyard.engine.job_record import JobRecord
from jobyard.engine.wants import Wants
from jobyard.model.events import AttemptsFinished, CancelRequested, Event, Finished, PriorityChanged, RetryRequested
from jobyard.model.job import State
from jobyard.model.task import AttemptId, Outcome
from jobyard.scheduling.cycle import plan
from jobyard.scheduling.snapshot import Request
from tests.builders import a_job, a_node, submitted
from tests.unit.engine.driving import Yard, calls_of, state_of

MANY = 400


def crowded(waiting: int) -> Yard:
    """A yard in which one job has all cores, and so many wait, of three shapes."""
    yard = Yard(a_node(cpus=4))
    yard.submit(a_job(cpus=4))
    for number in range(waiting):
        handle(yard.state, submitted(f"w{number}", number + 2, a_job(cpus=2 + number % 3), yard.now))
    round_of(yard)
    assert len(yard.planner.waits) == waiting
    return yard


def round_of(yard: Yard, *events: Event) -> None:
    """As the server does it, without the tests' checks of everything."""
    for event in events:
        handle(yard.state, event)
    for event in yard.planner.decide(yard.now):
        handle(yard.state, event)
    yard.planner.withdrawals(yard.now)
    yard.planner.next_deadline()


def one_more(yard: Yard) -> Event:
    number = yard.state.last_number + 1
    return submitted("more", number, a_job(cpus=2), yard.now)


def one_that_ends(yard: Yard) -> Event:
    (running,) = yard.state.jobs_with_slots()
    number = AttemptId(running.id, 0, 1)
    return AttemptsFinished((Finished(number, Outcome(1.0, 2.0, exit_code=0)),), yard.now)


def one_that_is_cancelled(yard: Yard) -> Event:
    return CancelRequested("w100", yard.now)


def one_that_goes_first(yard: Yard) -> Event:
    return PriorityChanged("w100", 1, yard.now)


@contextmanager
def asked_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The jobs of which it was worked out what they want."""
    asked: list[str] = []
    request_of = Wants.request_of

    def noting(wants: Wants, job: JobRecord, now: float = 0.0) -> Request | None:
        asked.append(job.id)
        return request_of(wants, job, now)

    with monkeypatch.context() as patch:
        patch.setattr(Wants, "request_of", noting)
        yield asked


@pytest.mark.parametrize(
    "change", [one_more, one_that_ends, one_that_is_cancelled, one_that_goes_first], ids=lambda each: each.__name__
)
def test_a_change_is_no_more_work_where_more_jobs_wait(change: Callable[[Yard], Event]) -> None:
    few, many = crowded(MANY), crowded(4 * MANY)
    events = [change(few), change(many)]
    assert calls_of(lambda: round_of(many, events[1])) <= 1.05 * calls_of(lambda: round_of(few, events[0]))


def test_only_what_changed_is_asked_what_it_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = crowded(MANY)
    with asked_of(monkeypatch) as asked:
        round_of(yard, one_more(yard))
        assert asked == ["more"]
        round_of(yard, CancelRequested("w7", yard.now), CancelRequested("w9", yard.now))
        assert asked == ["more"], "what has ended wants nothing"
        running = yard.state.jobs_with_slots()[0].id
        round_of(yard, one_that_ends(yard))
        assert set(asked[1:]) <= {running, "w0", "w1", "w2"}


def test_many_jobs_that_are_cancelled_together_are_planned_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = crowded(MANY)
    planned = Mock(side_effect=plan)
    monkeypatch.setattr(planning, "plan", planned)
    round_of(yard, *(CancelRequested(f"w{number}", yard.now) for number in range(MANY)))
    assert (planned.call_count, len(yard.planner.waits), len(yard.state.unfinished)) == (1, 0, 1)


def test_a_new_job_is_looked_at_at_once_however_many_wait() -> None:
    yard = crowded(MANY)
    round_of(yard, one_more(yard))
    assert yard.planner.waits["more"].sentence == yard.planner.waits["w0"].sentence
    urgent = submitted("urgent", yard.state.last_number + 1, a_job(cpus=4, priority=9), yard.now)
    round_of(yard, urgent)
    round_of(yard, one_that_ends(yard))
    assert state_of(yard.state.jobs["urgent"]) is State.STARTING
    assert "urgent" not in yard.planner.waits


def test_jobs_that_never_began_are_not_looked_at_for_a_deadline() -> None:
    yard = Yard(a_node(cpus=4))
    running = yard.submit(a_job(cpus=4, deadline_seconds=60))
    for _ in range(50):
        yard.submit(a_job(cpus=4, deadline_seconds=60))
    assert list(yard.state.changes.begun) == [running.id]


def test_a_new_planner_looks_once_at_every_job_and_finds_the_same_deadlines() -> None:
    yard = Yard(a_node(cpus=4))
    running = yard.submit(a_job(cpus=4, deadline_seconds=60))
    yard.start(*yard.active(running))
    for _ in range(5):
        yard.submit(a_job(cpus=4, deadline_seconds=60))
    known = yard.planner.next_deadline()
    yard.planner = planning.Planner(yard.state)
    assert yard.planner.next_deadline() == known == yard.now + 60
    assert list(yard.state.changes.begun) == [running.id]


def test_a_job_that_ended_and_is_retried_has_its_deadline_again() -> None:
    yard = Yard(a_node(cpus=4))
    job = yard.submit(a_job(cpus=4, deadline_seconds=60))
    yard.run_to_the_end(job, exit_code=1)
    assert yard.planner.next_deadline() is None
    assert not yard.state.changes.begun
    yard.apply(RetryRequested(job.id, ((0, 0),), yard.now))
    yard.start(*yard.active(job))
    assert yard.planner.next_deadline() == yard.now + 60
