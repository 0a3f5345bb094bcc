"""Where very many jobs wait, the scheduler looks at new ones a little later, and at freed room at once."""

from __future__ import annotations

import pytest

from jobyard.engine import planner as planning
from jobyard.model.events import RetryRequested
from jobyard.model.job import State
from tests.builders import a_job, a_node
from tests.unit.engine.driving import Yard, state_of


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> Yard:
    """A yard in which one job has all cores, and three wait."""
    monkeypatch.setattr(planning, "WAITING_FEW", 2)
    monkeypatch.setattr(planning, "LOOK_SECONDS", 10.0)
    yard = Yard(a_node(cpus=4))
    for _ in range(4):
        yard.submit(a_job(cpus=4))
    assert len(yard.planner.waits) == 3
    return yard


def test_a_new_job_among_many_is_looked_at_after_a_pause(crowded: Yard) -> None:
    job = crowded.submit(a_job(cpus=4))
    assert job.id not in crowded.planner.waits
    due = crowded.planner.next_deadline()
    assert due is not None
    assert crowded.now < due <= crowded.now + 30
    crowded.now = due
    assert list(crowded.planner.decide(due)) == []
    assert job.id in crowded.planner.waits
    assert crowded.planner.next_deadline() is None


def test_room_that_is_freed_is_given_at_once_also_to_a_new_job(crowded: Yard) -> None:
    urgent = crowded.submit(a_job(cpus=4, priority=9))
    running = next(job for job in crowded.state.jobs.values() if job.slots)
    crowded.finish(*crowded.active(running))
    assert state_of(urgent) is State.STARTING


def test_a_new_job_is_looked_at_at_once_where_few_wait() -> None:
    yard = Yard(a_node(cpus=4))
    assert state_of(yard.submit(a_job(cpus=4))) is State.STARTING
    assert yard.submit(a_job(cpus=4)).id in yard.planner.waits


def test_a_clock_that_was_put_back_does_not_keep_a_new_job_waiting(crowded: Yard) -> None:
    crowded.now -= 50
    assert crowded.submit(a_job(cpus=4)).id in crowded.planner.waits


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
