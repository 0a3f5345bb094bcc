"""Whole days of random load in seconds: invariants throughout, the same seed tells the same story, all jobs end."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from jobyard.engine.handling import handle
from jobyard.engine.invariants import check
from jobyard.engine.yard_state import YardState
from jobyard.model.events import (
    CancelRequested,
    Event,
    NodeJoined,
    NodeLost,
    NodeMeasured,
    PriorityChanged,
    TasksAssigned,
)
from jobyard.model.job import Dependency, JobSpec, State
from jobyard.model.node import Foreign
from jobyard.model.policy import FailurePolicy
from jobyard.model.task import AttemptId
from jobyard.simulator.replay import Simulation
from tests.builders import a_group, a_job, a_node, submitted
from tests.marks import long
from tests.unit.engine.world import durable

DAY = 86400.0
NODES = [
    a_node("cpu-1", cpus=16, memory_mib=65536),
    a_node("cpu-2", cpus=8, memory_mib=32768),
    a_node("gpu-1", cpus=16, memory_mib=131072, gpus=4),
    a_node("gpu-2", cpus=8, memory_mib=65536, gpus=2, gpu_mib=40000),
]


def a_random_job(chance: random.Random, earlier: list[str]) -> JobSpec:
    common: dict[str, Any] = {
        "priority": chance.choice([0, 0, 0, 5]),
        "retries": chance.choice([0, 0, 2]),
        "after": tuple(Dependency(job, chance.random() < 0.5) for job in earlier),
    }
    kind = chance.randrange(5)
    if kind == 0:
        return a_job(
            chance.randint(1, 200), cpus=chance.choice([0.5, 1, 2]), mem=1000, limit=chance.choice([None, 5]), **common
        )
    if kind == 1:
        return a_job(chance.randint(1, 20), gpus=1, gpu_mem=chance.choice([8000, 20000, 35000]), **common)
    if kind == 2:
        return a_job(chance.randint(1, 4), gpus=1, cpus=2, gang=True, deadline_seconds=20000, **common)
    if kind == 3:
        groups = (
            a_group("eval", count=2, completions=6, parallelism=2, mem=500),
            a_group("prep", completions=3, cpus=4),
        )
        return a_job(groups=groups, max_fails=chance.choice([None, 2]), **common)
    return a_job(chance.randint(2, 30), on_failure=FailurePolicy.STOP, cpus=chance.choice([1, 6]), **common)


def a_day(seed: int, *, jobs: int, days: float = 1.0, delay: float = 0.0) -> Simulation:
    chance = random.Random(seed)

    def behaviour(spec: JobSpec, attempt: AttemptId) -> tuple[float, int]:
        own = random.Random(f"{seed} {attempt}")
        return own.choice([0.05, 2.0, 60.0, 900.0]) * own.uniform(0.5, 2.0), own.choice([0] * 15 + [1])

    simulation = Simulation(behaviour, delay_seconds=delay)
    for node in NODES:
        simulation.at(0.0, NodeJoined(node, 0.0))
    for number in range(1, jobs + 1):
        time = chance.uniform(0, DAY * days)
        spec = a_random_job(chance, [])
        simulation.at(time, submitted(f"j{number}", number, spec, time))
        if chance.random() < 0.1:
            later = time + chance.uniform(1, 5000)
            simulation.at(later, CancelRequested(f"j{number}", later, force=chance.random() < 0.5))
        if chance.random() < 0.1:
            simulation.at(time + 100, PriorityChanged(f"j{number}", chance.randint(-5, 10), time + 100))
    for number in range(jobs + 1, jobs + 11):  # at the end of the line, so that what they need is there
        time = DAY * days + number
        spec = a_random_job(chance, [f"j{chance.randint(1, jobs)}"])
        simulation.at(time, submitted(f"j{number}", number, spec, time))
    for _ in range(int(8 * days)):
        node, time = chance.choice(NODES), chance.uniform(0, DAY * days)
        simulation.at(time, NodeLost(node.id, time))
        simulation.at(time + chance.uniform(10, 4000), NodeJoined(node, time))
    for _ in range(int(40 * days)):
        node, time = chance.choice(NODES), chance.uniform(0, DAY * days)
        simulation.at(time, NodeMeasured(node.id, Foreign(cpu_millis=chance.randint(0, 4000), memory_mib=2000), time))
    for node in NODES:  # in the evening everyone else goes home
        simulation.at(DAY * days + 1, NodeJoined(node, DAY * days + 1))
    simulation.run()
    return simulation


def check_ends(simulation: Simulation) -> Counter[State]:
    yard = simulation.yard
    check(yard, finished_too=True)
    assert not yard.unfinished
    assert not yard.slots
    return Counter(job.state for job in yard.jobs.values())


def attempts_only_grow(history: list[Event]) -> bool:
    """Replay, looking at each assignment: a task begins the attempt after its last one, and only while it waits."""
    yard = YardState()
    for event in history:
        if isinstance(event, TasksAssigned):
            job = yard.slots[event.slot][0]
            before = {n: job.task(n).attempt for first, last in event.ranges for n in range(first, last + 1)}
            handle(yard, event)
            assert all(job.task(n).attempt == attempt + 1 for n, attempt in before.items())
        else:
            handle(yard, event)
    return True


@pytest.mark.parametrize(("seed", "delay"), [(1, 0.0), (2, 0.3)])
def test_a_random_day_ends_and_replays(seed: int, delay: float) -> None:
    day = a_day(seed, jobs=60, delay=delay)
    ends = check_ends(day)
    assert ends[State.SUCCEEDED] > 20
    assert attempts_only_grow(day.history)
    rebuilt = YardState()
    for event in day.history:
        handle(rebuilt, event)
    assert durable(rebuilt) == durable(day.yard)


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = a_day(3, jobs=25), a_day(3, jobs=25)
    assert first.history == second.history
    assert first.history != a_day(4, jobs=25).history


def test_a_lost_node_that_never_returns_does_not_hold_up_the_rest() -> None:
    simulation = Simulation(lambda spec, attempt: (100.0, 0))
    for node in NODES[:2]:
        simulation.at(0.0, NodeJoined(node, 0.0))
    simulation.at(1.0, submitted("j", 1, a_job(100), 1.0))
    simulation.at(150.0, NodeLost("cpu-1", 150.0))
    simulation.run()
    assert simulation.yard.jobs["j"].state is State.SUCCEEDED


def test_urgent_work_overtakes_a_long_queue() -> None:
    simulation = Simulation(lambda spec, attempt: (10.0, 0))
    simulation.at(0.0, NodeJoined(a_node(cpus=4), 0.0))
    simulation.at(1.0, submitted("bulk", 1, a_job(1000), 1.0))
    simulation.at(100.0, submitted("urgent", 2, a_job(4, priority=1), 100.0))
    simulation.run()
    assert simulation.yard.jobs["urgent"].times.finished_at == pytest.approx(121, abs=10)
    assert simulation.yard.jobs["bulk"].times.finished_at == pytest.approx(1 + 10 * 251, abs=30)


def test_a_gang_that_needs_everything_gets_its_turn_among_small_jobs() -> None:
    simulation = Simulation(lambda spec, attempt: (50.0, 0))
    simulation.at(0.0, NodeJoined(a_node(cpus=4), 0.0))
    for number in range(1, 101):
        spec = a_job(4, gang=True) if number == 20 else a_job(1)
        simulation.at(number * 5.0, submitted(f"j{number}", number, spec, number * 5.0))
    simulation.run()
    gang, later = simulation.yard.jobs["j20"], simulation.yard.jobs["j21"]
    assert gang.times.started_at is not None
    assert later.times.started_at is not None
    assert gang.times.started_at < later.times.started_at


def test_deadlines_pass_without_anything_else_happening() -> None:
    simulation = Simulation(lambda spec, attempt: (1e6, 0))
    simulation.at(0.0, NodeJoined(a_node(), 0.0))
    simulation.at(1.0, submitted("j", 1, a_job(1, deadline_seconds=60), 1.0))
    simulation.run(until=1000)
    assert simulation.yard.jobs["j"].state is State.FAILED
    assert simulation.yard.jobs["j"].times.finished_at == pytest.approx(61.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*long(*range(10, 16))])
def test_random_weeks(seed: int) -> None:
    week = a_day(seed, jobs=250, days=7, delay=seed % 3 * 0.5)
    check_ends(week)
    assert attempts_only_grow(week.history)
