"""Training: jobs that report stop at a checkpoint, resume there, and their estimates follow their epochs."""

from __future__ import annotations

import pytest

from jobyard.engine.estimates import has_overrun
from jobyard.engine.handling import handle
from jobyard.engine.training import resumes_at
from jobyard.engine.yard_state import YardState
from jobyard.model.effects import Stop, Yield
from jobyard.model.events import (
    AttemptsProgressed,
    CancelRequested,
    NodeDrained,
    NodeRemoved,
    NodeResumed,
    Progressed,
    RetryRequested,
)
from jobyard.model.job import Reason, State
from jobyard.model.task import AttemptId
from jobyard.model.training import Training
from tests.builders import a_group, a_job, a_node
from tests.unit.engine.driving import state_of
from tests.unit.engine.training_yard import TrainingYard, a_training, an_elastic, report


@pytest.fixture
def yard() -> TrainingYard:
    return TrainingYard(a_node(gpus=2))


def test_a_job_that_is_asked_to_yield_stops_waits_and_resumes_where_it_was(yard: TrainingYard) -> None:
    job = yard.submit(a_training())
    attempt = yard.begin(job)
    yard.progress(attempt, report(3))
    effects = yard.yield_now(job)
    assert effects == [Yield("here", (attempt,), 600.0, 10.0, at_once=False)]
    assert state_of(job) is State.STOPPING
    yard.stop_at_checkpoint(job, report(4))
    assert yard.launched() == [AttemptId(job.id, 0, 2)]
    assert resumes_at(job, 0, "here") == 4
    assert job.preemption.count == 1


def test_one_that_ends_well_before_it_could_stop_has_succeeded(yard: TrainingYard) -> None:
    job = yard.submit(a_training())
    attempt = yard.begin(job)
    yard.progress(attempt, report(3))
    yard.yield_now(job)
    yard.finish(attempt)
    assert state_of(job) is State.SUCCEEDED


def test_one_that_fails_before_it_could_stop_has_failed(yard: TrainingYard) -> None:
    job = yard.submit(a_training())
    attempt = yard.begin(job)
    yard.progress(attempt, report(3))
    yard.yield_now(job)
    yard.finish(attempt, exit_code=1)
    assert state_of(job) is State.FAILED


def test_one_that_cannot_stop_by_itself_is_ended_at_once(yard: TrainingYard) -> None:
    job = yard.submit(a_training(training=Training(preemptible=True)))
    attempt = yard.begin(job)
    effects = yard.yield_now(job)
    assert effects == [Yield("here", (attempt,), 600.0, 10.0, at_once=True)]


def test_a_cancel_wins_over_a_yield(yard: TrainingYard) -> None:
    job = yard.submit(a_training())
    attempt = yard.begin(job)
    yard.progress(attempt, report(3))
    yard.yield_now(job)
    effects = yard.apply(CancelRequested(job.id, yard.now))
    assert [type(effect) for effect in effects] == [Stop]
    yard.finish(attempt, exit_code=85, reason=Reason.PREEMPTED)
    assert state_of(job) is State.CANCELLED


def test_a_job_sent_to_the_back_lets_others_of_its_priority_go_first() -> None:
    yard = TrainingYard(a_node(gpus=1))
    first = yard.submit(a_training())
    attempt = yard.begin(first)
    yard.progress(attempt, report(3))
    second = yard.submit(a_job(gpus=1))
    yard.yield_now(first, to_the_back=True)
    yard.stop_at_checkpoint(first, report(4))
    assert (state_of(first), state_of(second)) == (State.PENDING, State.STARTING)
    assert first.task(0).reason is Reason.PREEMPTED


def test_a_higher_priority_preempts_a_job_that_can_yield_and_no_other() -> None:
    yard = TrainingYard(a_node(gpus=2, cpus=8))
    rigid = yard.submit(a_job(gpus=1))
    victim = yard.submit(a_training())
    yard.begin(rigid)
    attempt = yard.begin(victim)
    yard.progress(attempt, report(3))
    urgent = yard.submit(a_job(gpus=1, priority=10))
    assert [(effect.attempts) for effect in yard.found(Yield)] == [(attempt,)]
    yard.stop_at_checkpoint(victim, report(4))
    assert state_of(urgent) is State.STARTING
    assert state_of(rigid) is State.RUNNING
    assert state_of(victim) is State.PENDING
    yard.finish(*yard.active(urgent))
    assert yard.launched() == [AttemptId(victim.id, 0, 2)]


def test_the_scheduler_is_told_for_whom_it_asked_a_job_to_stop_until_it_has() -> None:
    yard = TrainingYard(a_node(gpus=1))
    victim = yard.submit(a_training())
    yard.progress(yard.begin(victim), report(3))
    urgent = yard.submit(a_job(gpus=1, priority=10))
    (seen,) = yard.planner.snapshot(yard.now).running
    assert (seen.is_stopping, seen.stops_for, seen.becomes) == (True, urgent.id, None)
    yard.stop_at_checkpoint(victim, report(4))
    assert not yard.planner.snapshot(yard.now).running


def test_nobody_is_preempted_in_the_last_epoch() -> None:
    yard = TrainingYard(a_node(gpus=1))
    job = yard.submit(a_training())
    yard.progress(yard.begin(job), report(9))
    yard.submit(a_job(gpus=1, priority=10))
    assert not yard.found(Yield)


def test_a_drained_node_asks_those_that_can_yield_and_gives_them_back_when_it_is_resumed(yard: TrainingYard) -> None:
    job = yard.submit(a_training())
    yard.progress(yard.begin(job), report(3))
    yard.apply(NodeDrained("here", yard.now))
    assert len(yard.found(Yield)) == 1
    yard.stop_at_checkpoint(job, report(4))
    assert state_of(job) is State.PENDING
    yard.apply(NodeResumed("here", yard.now))
    assert resumes_at(job, 0, "here") == 4
    assert job.task(0).state is State.STARTING


def test_a_checkpoint_keeps_a_job_on_its_node_until_the_node_is_removed() -> None:
    yard = TrainingYard(a_node("a", gpus=1), a_node("b", gpus=1))
    job = yard.submit(a_training())
    attempt = yard.begin(job)
    home = job.task(0).node
    other = "b" if home == "a" else "a"
    yard.progress(attempt, report(3))
    urgent = yard.submit(a_job(gpus=1, priority=10, on=home))
    yard.stop_at_checkpoint(job, report(4))
    assert state_of(urgent) is State.STARTING
    assert state_of(job) is State.PENDING, f"it would begin anew on {other}"
    yard.finish(*yard.active(urgent))
    assert job.task(0).node == home
    yard.start(*yard.active(job))
    yard.apply(NodeRemoved(home, yard.now))
    assert (job.task(0).node, resumes_at(job, 0, other)) == (other, None)


def test_a_success_that_is_run_again_begins_from_nothing_and_a_failure_goes_on(yard: TrainingYard) -> None:
    for exit_code, expected in ((0, None), (1, 4)):
        job = yard.submit(a_training())
        attempt = yard.begin(job)
        yard.progress(attempt, report(4))
        yard.finish(attempt, exit_code=exit_code)
        yard.apply(RetryRequested(job.id, ((0, 0),), yard.now))
        assert resumes_at(job, 0, "here") == expected
        yard.run_to_the_end(job)


def test_a_gang_yields_and_resumes_together(yard: TrainingYard) -> None:
    job = yard.submit(a_job(groups=(a_group(count=2, cpus=0),), gang=True, training=Training(epochs=5)))
    first, second = yard.active(job)
    yard.start(first, second)
    yard.progress(first, report(1, 5))
    yard.yield_now(job)
    yard.finish(first, exit_code=85, reason=Reason.PREEMPTED, progress=report(2, 5))
    assert not yard.launched()
    yard.finish(second, exit_code=85, reason=Reason.PREEMPTED)
    assert [attempt.number for attempt in yard.launched()] == [2, 2]
    assert resumes_at(job, 1, "here") == 2


def test_a_gang_of_which_one_part_was_done_when_the_other_stopped_begins_again_together(yard: TrainingYard) -> None:
    for order in ((0, 1), (1, 0)):
        job = yard.submit(a_job(groups=(a_group(count=2, cpus=0),), gang=True, training=Training(epochs=5)))
        attempts = yard.active(job)
        yard.start(*attempts)
        yard.progress(attempts[0], report(1, 5))
        yard.yield_now(job)
        for rank in order:
            if rank == 0:
                yard.finish(attempts[0], exit_code=85, reason=Reason.PREEMPTED, progress=report(2, 5))
            else:
                yard.finish(attempts[1])
        assert len(yard.launched()) == 2
        yard.run_to_the_end(job)


def test_a_rank_that_fails_because_its_peer_has_stopped_has_stopped_too(yard: TrainingYard) -> None:
    job = yard.submit(a_job(groups=(a_group(count=2, cpus=0),), gang=True, training=Training(epochs=5)))
    first, second = yard.active(job)
    yard.start(first, second)
    yard.progress(first, report(1, 5))
    yard.yield_now(job)
    yard.finish(first, exit_code=85, reason=Reason.PREEMPTED, progress=report(2, 5))
    yard.finish(second, exit_code=1)
    assert len(yard.launched()) == 2


def test_the_ranks_of_a_gang_resume_together_wherever_they_are() -> None:
    yard = TrainingYard(a_node("a", gpus=1), a_node("b", gpus=1))
    job = yard.submit(a_job(groups=(a_group(count=2, cpus=0, gpus=1),), gang=True, training=Training(epochs=5)))
    first, second = yard.active(job)
    yard.start(first, second)
    yard.progress(first, report(1, 5))
    yard.yield_now(job)
    yard.finish(second, exit_code=85, reason=Reason.PREEMPTED)
    yard.finish(first, exit_code=85, reason=Reason.PREEMPTED, progress=report(2, 5))
    nodes = {job.task(rank).node for rank in (0, 1)}
    assert nodes == {"a", "b"}
    assert [resumes_at(job, rank, job.task(rank).node) for rank in (0, 1)] == [2, 2]


def test_an_array_is_not_stopped_for_the_sake_of_one_of_its_tasks() -> None:
    yard = TrainingYard(a_node(gpus=4))
    array = yard.submit(a_training(tasks=4))
    for attempt in yard.active(array):
        yard.start(attempt)
        yard.progress(attempt, report(3))
    yard.submit(a_job(gpus=1, priority=10))
    assert not yard.found(Yield)


def test_a_job_that_missed_its_deadline_is_told_so_and_not_resized_again() -> None:
    yard = TrainingYard(a_node(gpus=4))
    neighbour = yard.submit(a_job(gpus=2))
    job = yard.submit(an_elastic())
    yard.progress(yard.begin(job), report(2, 100))
    yard.yield_now(job)
    message = "did not stop at a checkpoint within 600 s; ended by SIGTERM"
    yard.finish(*yard.active(job), signal=15, reason=Reason.PREEMPTED, message=message)
    assert job.preemption.missed_deadline == message
    yard.progress(yard.begin(job), report(3, 100))
    yard.finish(*yard.active(neighbour))
    assert not yard.found(Yield)


def test_a_long_epoch_has_a_long_deadline_and_a_short_deadline_no_resize() -> None:
    yard = TrainingYard(a_node(gpus=6))
    neighbour = yard.submit(a_job(gpus=2))
    jobs = [
        yard.submit(an_elastic(1, 3, training=Training(epochs=100))),
        yard.submit(an_elastic(1, 3, training=Training(epochs=100, yield_seconds=60))),
    ]
    for job in jobs:
        yard.progress(yard.begin(job), report(2, 100, seconds=3600))
    assert [effect.deadline_seconds for effect in yard.yield_now(jobs[0]) if isinstance(effect, Yield)] == [7200.0]
    yard.finish(*yard.active(neighbour))
    assert not yard.found(Yield)


# -- time


def test_the_first_epoch_corrects_the_estimate_and_an_overrun_is_noticed(yard: TrainingYard) -> None:
    job = yard.submit(a_training(training=Training(epochs=10, estimated_seconds=3600)))
    yard.progress(yard.begin(job), report(1, 10, seconds=100))
    assert job.training.estimate_seconds == pytest.approx(1000)
    assert not has_overrun(job, yard.now + 1100)
    assert has_overrun(job, yard.now + 1300)


def test_an_epoch_of_a_job_of_one_size_asks_for_no_new_plan(yard: TrainingYard) -> None:
    for spec, is_asked in ((a_training(), False), (an_elastic(1, 1), True)):
        job = yard.submit(spec)
        attempt = yard.begin(job)
        yard.progress(attempt, report(1))
        handle(yard.state, AttemptsProgressed((Progressed(attempt, report(2)),), yard.now))
        assert yard.state.changes.plan == is_asked
        yard.apply()


def test_the_whole_is_rebuilt_from_the_journal(yard: TrainingYard) -> None:
    job = yard.submit(an_elastic(1, 2))
    yard.progress(yard.begin(job), report(2, 100))
    guest = yard.submit(a_job(gpus=1))
    yard.stop_at_checkpoint(job, report(3, 100))
    state = YardState()
    for event in yard.history:
        handle(state, event)
    rebuilt = state.jobs[job.id]
    assert (rebuilt.spec, rebuilt.training.progress, rebuilt.tasks.counts) == (
        job.spec,
        job.training.progress,
        job.tasks.counts,
    )
    assert rebuilt.training.checkpoint_places == job.training.checkpoint_places
    assert state.jobs[guest.id].state is guest.state
    assert state.trainings.profiles == yard.state.trainings.profiles
