"""What is learned of a kind of job, and which jobs are of one kind?"""

from __future__ import annotations

import json

import pytest

from jobyard.engine import saved_state
from jobyard.engine.job_record import JobRecord
from jobyard.engine.profiles import Profile, kind_of
from jobyard.engine.yard_state import YardState
from jobyard.model.training import Progress, Size, Training
from tests.builders import a_job


def test_jobs_that_differ_in_a_batch_or_in_the_training_set_are_not_of_one_kind() -> None:
    sizes = [(None, None), (8, None), (None, 8), (8, 1000), (8, 2000), (16, 1000)]
    kinds = {kind_of(a_job(training=Training(batch_size=batch, training_set_size=samples))) for batch, samples in sizes}
    assert len(kinds) == len(sizes)


def test_jobs_that_differ_in_how_long_they_train_are_of_one_kind() -> None:
    assert (
        kind_of(a_job(training=Training(epochs=3))) == kind_of(a_job(training=Training(epochs=30))) == kind_of(a_job())
    )


def test_the_first_steps_of_an_attempt_do_not_forget_how_long_epochs_took() -> None:
    profile, size = Profile(), Size(1, 1)
    profile.learn(size, Progress(3, 10, step_seconds=0.2, epoch_seconds=60.0), 3)
    profile.learn(size, Progress(3, 10, step_seconds=0.1), 0)
    assert profile.epoch_seconds(size) == 60.0
    assert profile.by_size[size].step_seconds == 0.1


def test_of_too_many_kinds_the_one_that_learned_nothing_for_longest_goes_also_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jobyard.engine.training.PROFILES_MOST", 2)
    state = YardState()
    jobs = [JobRecord(f"j{batch}", batch, a_job(training=Training(batch_size=batch)), 0.0) for batch in (1, 2, 3)]
    for job in (*jobs[:2], jobs[0]):
        state.trainings.learn_use(job, 100, 100, None)
    again = saved_state.load(json.loads(json.dumps(saved_state.save(state))))
    for each in (state, again):
        each.trainings.learn_use(jobs[2], 100, 100, None)
        assert [each.trainings.profile_of(job) is not None for job in jobs] == [True, False, True]
