from __future__ import annotations

import pytest

from jobyard.model.events import AttemptsStarted, AttemptsWithdrawn, CancelRequested, NodeJoined, NodeLost
from jobyard.model.job import State
from jobyard.simulator.replay import Simulation
from tests.builders import a_job, a_node, submitted


def a_simulation(seconds: float = 10.0, code: int = 0, *, delay: float = 0.0, cpus: float = 2) -> Simulation:
    simulation = Simulation(lambda spec, attempt: (seconds, code), delay_seconds=delay)
    simulation.at(0.0, NodeJoined(a_node(cpus=cpus), 0.0))
    return simulation


def test_virtual_time_passes_as_tasks_take_it() -> None:
    simulation = a_simulation(10.0)
    simulation.at(5.0, submitted("j", 1, a_job(4), 5.0))
    simulation.run()
    job = simulation.yard.jobs["j"]
    assert (job.times.started_at, job.times.finished_at) == (5.0, 25.0)


def test_it_stops_where_it_is_told_and_goes_on_from_there() -> None:
    simulation = a_simulation(10.0)
    simulation.at(0.0, submitted("j", 1, a_job(1)))
    simulation.run(until=5.0)
    assert simulation.yard.jobs["j"].tasks.counts[State.RUNNING] == 1
    simulation.run()
    assert simulation.yard.jobs["j"].tasks.counts[State.SUCCEEDED] == 1


def test_a_cancelled_job_is_gone_soon() -> None:
    simulation = a_simulation(1e6)
    simulation.at(0.0, submitted("j", 1, a_job(5)))
    simulation.at(50.0, CancelRequested("j", 50.0))
    simulation.run(until=100.0)
    assert simulation.yard.jobs["j"].state is State.CANCELLED
    assert simulation.yard.jobs["j"].times.finished_at == pytest.approx(50.1)


def test_nothing_is_heard_of_what_ran_on_a_lost_node() -> None:
    simulation = a_simulation(10.0)
    simulation.at(0.0, submitted("j", 1, a_job(1)))
    simulation.at(5.0, NodeLost("here", 5.0))
    simulation.at(60.0, NodeJoined(a_node(cpus=2), 60.0))
    simulation.run()
    job = simulation.yard.jobs["j"]
    assert (job.times.finished_at, job.task(0).attempt) == (70.0, 2)


def test_words_may_be_under_way_for_a_while() -> None:
    simulation = a_simulation(10.0, delay=2.0)
    simulation.at(0.0, submitted("j", 1, a_job(1)))
    simulation.run()
    assert simulation.now == 12.0
    assert simulation.yard.jobs["j"].times.started_at == 0.0


def test_what_waits_behind_a_long_task_is_given_back_and_runs_elsewhere() -> None:
    simulation = Simulation(lambda spec, attempt: (500.0 if attempt.task == 10 else 0.1, 0))
    simulation.at(0.0, NodeJoined(a_node(cpus=2), 0.0))
    simulation.at(0.0, submitted("j", 1, a_job(60)))
    simulation.run(until=100.0)
    assert any(isinstance(event, AttemptsWithdrawn) for event in simulation.history)
    assert simulation.yard.jobs["j"].tasks.counts[State.SUCCEEDED] == 59
    simulation.run()
    started = [item.attempt for e in simulation.history if isinstance(e, AttemptsStarted) for item in e.items]
    assert len(started) == len({attempt.task for attempt in started}) == 60


def test_it_wakes_up_when_a_failed_task_may_be_tried_again() -> None:
    simulation = a_simulation(10.0, code=1)
    simulation.at(0.0, submitted("j", 1, a_job(1, retries=4)))
    simulation.run()
    job = simulation.yard.jobs["j"]
    assert (job.task(0).attempt, job.times.finished_at) == (5, 5 * 10.0 + 0 + 1 + 2 + 4)
