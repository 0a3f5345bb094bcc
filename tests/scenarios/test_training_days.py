"""Days of training: elastic, preemptible, rigid and sharing jobs. All of them end, and nobody is pushed about."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from jobyard.engine.handling import handle
from jobyard.engine.invariants import check
from jobyard.engine.yard_state import YardState
from jobyard.model.events import (
    AttemptsFinished,
    AttemptsProgressed,
    Event,
    JobSized,
    NodeJoined,
    NodeLost,
    PriorityChanged,
    YieldRequested,
)
from jobyard.model.job import Command, JobSpec, Reason, State
from jobyard.model.task import AttemptId
from jobyard.model.training import Elastic, Size, Training
from jobyard.simulator.replay import Simulation
from jobyard.simulator.training import Trainee, power_law
from tests.builders import a_job, a_node, submitted
from tests.marks import long

BUSY_SECONDS = 4 * 3600.0  # in which all jobs of a day are submitted
NODES = [
    a_node("small", cpus=32, memory_mib=262144, gpus=2, gpu_mib=24000),
    a_node("medium", cpus=64, memory_mib=262144, gpus=4),
    a_node("large", cpus=128, memory_mib=524288, gpus=8),
]


def a_training(name: str = "train", epochs: int = 20, **spec: Any) -> JobSpec:
    """A job of its own kind: what is learned of one says nothing of the others."""
    training = Training(epochs=epochs, preemptible=spec.pop("preemptible", None))
    workers = spec.pop("workers", 1)
    found = a_job(**{"name": name, "training": training, "gang": workers > 1, "gpus": 1, **spec})
    (group,) = found.groups
    return replace(found, groups=(replace(group, command=Command(shell=name), count=workers, completions=1),))


def a_simulation(trainees: dict[str, Trainee], *nodes: Any, **options: Any) -> Simulation:
    simulation = Simulation(
        lambda spec, attempt: (600.0, 0), trainees=lambda spec, attempt: trainees.get(spec.name), **options
    )
    for node in nodes:
        simulation.at(0.0, NodeJoined(node, 0.0))
    return simulation


# -- single stories ----------------------------------------------------------------------------------------------------


def test_a_training_takes_its_start_and_its_epochs() -> None:
    simulation = a_simulation({"t": Trainee(5, power_law(60), restart_seconds=10, checkpoint_seconds=1)}, NODES[1])
    simulation.at(0.0, submitted("t", 1, a_training("t", 5)))
    simulation.run()
    assert simulation.yard.jobs["t"].times.finished_at == 10 + 5 * 61


def test_an_urgent_job_gets_its_gpus_at_the_next_checkpoint_and_the_other_goes_on_where_it_was() -> None:
    trainees = {"low": Trainee(20, power_law(60), 10, 1), "high": Trainee(2, power_law(60), 10, 1)}
    simulation = a_simulation(trainees, a_node("n", cpus=64, gpus=1))
    simulation.at(0.0, submitted("low", 1, a_training("low", 20)))
    simulation.at(100.0, submitted("high", 2, a_training("high", 2, priority=1), 100.0))
    simulation.run()
    low, high = simulation.yard.jobs["low"], simulation.yard.jobs["high"]
    assert high.times.started_at == pytest.approx(10 + 2 * 61)
    assert high.times.finished_at is not None
    assert low.times.finished_at == pytest.approx(high.times.finished_at + 10 + 18 * 61)
    assert low.preemption.count == 1


def test_nobody_is_stopped_in_his_last_epoch() -> None:
    simulation = a_simulation({"low": Trainee(2, power_law(60), 10, 1)}, a_node("n", cpus=64, gpus=1))
    simulation.at(0.0, submitted("low", 1, a_training("low", 2)))
    simulation.at(100.0, submitted("high", 2, a_job(gpus=1, priority=1), 100.0))
    simulation.run()
    assert simulation.yard.jobs["low"].times.finished_at == pytest.approx(10 + 2 * 61)
    assert simulation.yard.jobs["low"].task(0).attempt == 1


def test_an_elastic_job_makes_way_and_grows_back() -> None:
    simulation = a_simulation({"e": Trainee(100, power_law(400), 10, 1)}, a_node("n", cpus=64, gpus=4))
    simulation.at(0.0, submitted("e", 1, a_training("e", 100, elastic=Elastic(gpus=(1, 4)))))
    simulation.at(500.0, submitted("other", 2, a_job(gpus=2), 500.0))
    simulation.run()
    sizes = [event.size for event in simulation.history if isinstance(event, JobSized)]
    assert sizes == [Size(1, 4), Size(1, 2), Size(1, 4)]
    assert all(job.state is State.SUCCEEDED for job in simulation.yard.jobs.values())
    assert (simulation.yard.jobs["other"].times.started_at or 0.0) < 800


def test_a_gang_over_two_nodes_comes_back_after_it_made_room() -> None:
    trainees = {"gang": Trainee(20, power_law(60), 10, 1)}
    simulation = a_simulation(trainees, a_node("n1", cpus=64, gpus=2), a_node("n2", cpus=64, gpus=2))
    simulation.at(0.0, submitted("gang", 1, a_training("gang", 20, workers=4)))
    simulation.at(100.0, submitted("high", 2, a_job(gpus=2, priority=1), 100.0))
    simulation.run()
    assert simulation.yard.jobs["high"].state is State.SUCCEEDED
    assert simulation.yard.jobs["gang"].state is State.SUCCEEDED


def test_who_declared_too_little_memory_runs_out_of_it_and_then_gets_more() -> None:
    trainees = {"modest": Trainee(6, gpu_mib=20000), "liar": Trainee(6, gpu_mib=70000)}
    simulation = a_simulation(trainees, a_node("n", cpus=64, gpus=1, gpu_mib=80000))
    simulation.at(0.0, submitted("modest", 1, a_training("modest", 6, gpu_mem=20000)))
    simulation.at(1.0, submitted("liar", 2, a_training("liar", 6, gpu_mem=20000), 1.0))
    simulation.run()
    ended = [item for event in simulation.history if isinstance(event, AttemptsFinished) for item in event.items]
    assert Reason.OUT_OF_GPU_MEMORY in {item.outcome.reason for item in ended}
    assert all(job.state is State.SUCCEEDED for job in simulation.yard.jobs.values())


# -- random days -------------------------------------------------------------------------------------------------------


@dataclass
class Watch:
    """What must hold of a history, beside the invariants of the engine."""

    done: dict[tuple[str, int], int] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    last_epochs: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def see(self, event: Event, totals: dict[str, int], lost_nodes: bool) -> None:
        match event:
            case AttemptsProgressed(items=items):
                for attempt, progress in items:
                    self._advance(attempt, progress.epochs_done, lost_nodes)
            case AttemptsFinished(items=items):
                for attempt, outcome in items:
                    if outcome.progress is not None:
                        self._advance(attempt, outcome.progress.epochs_done, lost_nodes)
            case YieldRequested(job=job):
                self.asked[job] += 1
                assert self.last_epochs[job] < totals[job] - 1, f"{job} was asked to stop in its last epoch"

    def _advance(self, attempt: AttemptId, epochs: int, lost_nodes: bool) -> None:
        known = self.done.get((attempt.job, attempt.task), 0)
        assert lost_nodes or epochs >= known, f"{attempt} is at {epochs}, and was at {known}"
        self.done[attempt.job, attempt.task] = epochs
        self.last_epochs[attempt.job] = epochs


def a_training_day(seed: int, jobs: int, *, delay: float = 0.0, losses: int = 0) -> tuple[Simulation, dict[str, int]]:
    chance = random.Random(seed)
    trainees: dict[str, Trainee] = {}
    totals: dict[str, int] = {}
    simulation = a_simulation(trainees, *NODES, delay_seconds=delay)
    for number in range(1, jobs + 1):
        time, name = chance.uniform(0, BUSY_SECONDS), f"j{number}"
        spec, trainee = _a_random_training(chance, name)
        if trainee is not None:
            trainees[name] = trainee
            totals[name] = trainee.epochs
        simulation.at(time, submitted(name, number, spec, time))
        if chance.random() < 0.1:
            simulation.at(time + 300, PriorityChanged(name, chance.randint(-2, 2), time + 300))
    for _ in range(losses):
        node, time = chance.choice(NODES), chance.uniform(0, BUSY_SECONDS)
        simulation.at(time, NodeLost(node.id, time))
        back = time + chance.uniform(10, 2000)
        simulation.at(back, NodeJoined(node, back))
    simulation.run()
    return simulation, totals


def _a_random_training(chance: random.Random, name: str) -> tuple[JobSpec, Trainee | None]:
    epochs = chance.randint(1, 40)
    curve = power_law(chance.choice([20.0, 120.0, 600.0]), chance.choice([0.3, 0.7, 0.95]))
    trainee = Trainee(epochs, curve, chance.choice([2.0, 20.0, 60.0]), chance.choice([0.0, 5.0]))
    common: dict[str, Any] = {"priority": chance.choice([-1, 0, 0, 0, 1]), "cpus": 1}
    match chance.randrange(6):
        case 0:  # elastic in GPUs
            least = chance.choice([1, 1, 2])
            elastic = Elastic(gpus=(least, chance.randint(least, 8)))
            return a_training(name, epochs, gpus=least, elastic=elastic, **common), trainee
        case 1:  # elastic in workers
            spec = a_training(name, epochs, workers=1, elastic=Elastic(workers=(1, chance.randint(1, 6))), **common)
            return replace(spec, gang=True), trainee
        case 2:  # rigid, and able to yield
            return a_training(name, epochs, gpus=chance.choice([1, 2, 4]), **common), trainee
        case 3:  # a gang
            return a_training(name, epochs, workers=chance.randint(2, 4), **common), trainee
        case 4:  # shares a GPU, and does not know how much it needs
            real = chance.choice([4000, 9000, 20000])
            declared = int(real * chance.choice([0.3, 1.0, 2.0]))
            return a_training(name, epochs, gpu_mem=declared, **common), replace(trainee, gpu_mib=real)
        case _:  # an array without checkpoints
            return a_job(chance.randint(1, 12), gpus=chance.choice([0, 1]), name=name, **common), None


def check_day(simulation: Simulation, totals: dict[str, int], *, lost_nodes: bool = False) -> Watch:
    yard = simulation.yard
    check(yard, finished_too=True)
    assert {job.id: job.state for job in yard.jobs.values() if job.state is not State.SUCCEEDED} == {}
    assert not yard.slots
    watch = Watch()
    for event in simulation.history:
        watch.see(event, totals, lost_nodes)
    for name, epochs in totals.items():
        assert watch.done[name, 0] == epochs
    rebuilt = YardState()
    for event in simulation.history:
        handle(rebuilt, event)
    assert {job.id: job.state for job in rebuilt.jobs.values()} == {job.id: job.state for job in yard.jobs.values()}
    return watch


@pytest.mark.parametrize(("seed", "delay"), [(1, 0.0), (2, 0.5), (3, 0.0)])
def test_all_jobs_of_a_training_day_end_and_none_is_pushed_about(seed: int, delay: float) -> None:
    simulation, totals = a_training_day(seed, jobs=60, delay=delay)
    watch = check_day(simulation, totals)
    assert sum(watch.asked.values()) > 5  # something happened
    assert max(watch.asked.values()) <= 25  # by 60 others, over half a day
    assert sum(watch.asked.values()) <= 4 * len(totals)


def test_a_day_on_which_nodes_are_lost_ends_as_well() -> None:
    simulation, totals = a_training_day(4, jobs=50, losses=6)
    check_day(simulation, totals, lost_nodes=True)


def test_the_same_seed_trains_the_same_way() -> None:
    assert a_training_day(5, jobs=20)[0].history == a_training_day(5, jobs=20)[0].history


@pytest.mark.slow
@pytest.mark.parametrize("seed", long(*range(100, 108)))
def test_many_training_days(seed: int) -> None:
    simulation, totals = a_training_day(seed, jobs=100, delay=seed % 3 * 0.4, losses=seed % 2 * 5)
    watch = check_day(simulation, totals, lost_nodes=seed % 2 == 1)
    assert max(watch.asked.values()) <= 40
