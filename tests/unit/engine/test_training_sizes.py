"""Sizes of training jobs: who grows, who becomes smaller, and which size stays?"""

from __future__ import annotations

from jobyard.model.effects import Yield
from jobyard.model.events import (
    ScaleRequested,
)
from jobyard.model.job import State
from jobyard.model.training import Elastic, Size, Training
from tests.builders import a_group, a_job, a_node
from tests.unit.engine.driving import state_of
from tests.unit.engine.training_yard import TrainingYard, an_elastic, gpus_of, report


def test_an_elastic_job_starts_as_large_as_there_is_room() -> None:
    yard = TrainingYard(a_node(gpus=4))
    yard.submit(a_job(gpus=1))
    job = yard.submit(an_elastic())
    assert job.spec.training_size == Size(1, 3)
    assert len(gpus_of(yard, job)) == 3


def test_a_finishing_job_makes_its_neighbour_grow_at_a_checkpoint() -> None:
    yard = TrainingYard(a_node(gpus=4))
    neighbour = yard.submit(a_job(gpus=2))
    job = yard.submit(an_elastic())
    attempt = yard.begin(job)
    yard.begin(neighbour)
    yard.progress(attempt, report(2, 100))
    yard.finish(*yard.active(neighbour))
    assert [effect.attempts for effect in yard.found(Yield)] == [(attempt,)]
    yard.stop_at_checkpoint(job, report(3, 100))
    assert job.spec.training_size == Size(1, 4)
    assert (len(gpus_of(yard, job)), job.preemption.resizes) == (4, 1)


def test_an_arriving_job_makes_an_elastic_one_smaller() -> None:
    yard = TrainingYard(a_node(gpus=4))
    job = yard.submit(an_elastic())
    attempt = yard.begin(job)
    yard.progress(attempt, report(2, 100))
    guest = yard.submit(a_job(gpus=1))
    assert [effect.attempts for effect in yard.found(Yield)] == [(attempt,)]
    yard.stop_at_checkpoint(job, report(3, 100))
    assert job.spec.training_size == Size(1, 3)
    assert state_of(guest) is State.STARTING


def test_it_does_not_grow_for_a_gain_that_its_restart_would_cost() -> None:
    yard = TrainingYard(a_node(gpus=4))
    neighbour = yard.submit(a_job(gpus=2))
    job = yard.submit(an_elastic())
    yard.progress(yard.begin(job), report(2, 4, restart_seconds=1000.0))
    yard.finish(*yard.active(neighbour))
    assert not yard.found(Yield)


def test_a_size_that_a_user_wants_stays() -> None:
    yard = TrainingYard(a_node(gpus=4))
    job = yard.submit(an_elastic())
    attempt = yard.begin(job)
    yard.progress(attempt, report(2, 100))
    yard.apply(ScaleRequested(job.id, Size(1, 2), yard.now))
    assert [effect.attempts for effect in yard.found(Yield)] == [(attempt,)]
    yard.stop_at_checkpoint(job, report(3, 100))
    assert job.spec.training_size == Size(1, 2)
    attempt = yard.begin(job)
    yard.progress(attempt, report(4, 100, seconds=110))
    assert not yard.found(Yield)
    yard.apply(ScaleRequested(job.id, None, yard.now))
    assert [effect.attempts for effect in yard.found(Yield)] == [(attempt,)]


def test_workers_come_and_go_with_the_size_and_no_attempt_number_is_used_twice() -> None:
    yard = TrainingYard(a_node(cpus=2))
    group = a_group(count=1, cpus=1)
    job = yard.submit(a_job(groups=(group,), gang=True, elastic=Elastic(workers=(1, 2)), training=Training(epochs=9)))
    assert job.spec.size == 2
    seen = set(yard.active(job))
    for size in (1, 2, 1):
        first = yard.begin(job)
        yard.progress(first, report(size, 9))
        yard.apply(ScaleRequested(job.id, Size(size, 0), yard.now))
        yard.stop_at_checkpoint(job, report(size + 1, 9))
        assert job.spec.size == len(yard.active(job)) == size
        assert not seen & set(yard.active(job))
        seen |= set(yard.active(job))
    yard.finish(*yard.active(job))
    assert state_of(job) is State.SUCCEEDED
