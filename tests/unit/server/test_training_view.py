"""What people see of training."""

from __future__ import annotations

from typing import Any

import pytest

from jobyard.engine.job_record import JobRecord
from jobyard.model.events import AttemptsProgressed, Progressed
from jobyard.model.task import AttemptId
from jobyard.model.training import Epoch, Progress, Training
from jobyard.server.training_view import training_view
from tests.builders import a_job, a_node
from tests.unit.engine.driving import Yard


def begun(yard: Yard, **spec: Any) -> tuple[JobRecord, list[AttemptId]]:
    job = yard.submit(a_job(**spec))
    yard.start(*yard.active(job))
    return job, yard.active(job)


def tell(yard: Yard, attempt: AttemptId, done: int, *seconds: float, total: int = 10) -> None:
    history = tuple(Epoch(number + 1, each) for number, each in enumerate(seconds))
    middle = sorted(seconds)[len(seconds) // 2] if seconds else 0.0
    progress = Progress(done, total, epoch_seconds=middle, history=history)
    yard.apply(AttemptsProgressed((Progressed(attempt, progress),), yard.now))


def test_a_job_that_does_not_train_has_none() -> None:
    yard = Yard()
    job, _ = begun(yard)
    assert training_view(yard.state, job) is None


def test_the_eta_is_what_is_left_times_what_epochs_took_with_their_range() -> None:
    yard = Yard()
    job, (attempt,) = begun(yard, training=Training(epochs=10))
    tell(yard, attempt, 3, 10.0, 12.0, 20.0)
    view = training_view(yard.state, job)
    assert view is not None
    assert (view.epochs_done, view.epochs_total) == (3, 10)
    assert (view.eta_low_seconds, view.eta_seconds, view.eta_high_seconds) == (70.0, 84.0, 140.0)


def test_tasks_of_an_array_train_side_by_side() -> None:
    yard = Yard(a_node(cpus=2))
    job, attempts = begun(yard, tasks=4, training=Training(epochs=10))
    for attempt in attempts:
        tell(yard, attempt, 5, 2.0)
    view = training_view(yard.state, job)
    assert view is not None
    # Two have five epochs left, two have not begun: thirty epochs of two seconds, two at a time.
    assert view.eta_seconds == pytest.approx(30.0)


@pytest.mark.parametrize(
    ("percent", "metrics", "total", "seen"),
    [
        (0.0, {}, 6, 0),
        (40.0, {}, 6, 2),
        (40.0, {"epoch": 3.0}, 6, 3),
        (100.0, {"epoch": 5.98}, 6, 6),
        (100.0, {"epoch": 7.0}, 6, 6),
        (50.0, {"epoch": 2.0}, None, 2),
        (50.0, {"epoch": float("nan")}, 6, 3),
        (50.0, {}, None, 0),
    ],
)
def test_a_trainer_that_tells_its_share_only_has_its_epochs_counted_by_it(
    percent: float, metrics: dict[str, float], total: int | None, seen: int
) -> None:
    yard = Yard()
    job, (attempt,) = begun(yard, training=Training(epochs=total) if total else None)
    yard.apply(AttemptsProgressed((Progressed(attempt, Progress(percent=percent, metrics=metrics)),), yard.now))
    view = training_view(yard.state, job)
    assert view is not None
    assert (view.epochs_done, view.epochs_total) == (seen, total)
    assert job.training.progress[0].epochs_done == 0, "what a next attempt begins after is not guessed"


def test_a_job_that_ended_and_never_told_of_epochs_shows_none() -> None:
    yard = Yard()
    job, attempts = begun(yard, training=Training(epochs=10))
    view = training_view(yard.state, job)
    assert view is not None
    assert view.epochs_total == 10
    yard.finish(*attempts)
    view = training_view(yard.state, job)
    assert view is not None
    assert view.epochs_total is None


def test_before_its_first_epoch_is_over_batch_and_set_size_tell_how_long_one_takes() -> None:
    yard = Yard()
    job, (attempt,) = begun(yard, training=Training(epochs=10, batch_size=8, training_set_size=1000))
    yard.apply(AttemptsProgressed((Progressed(attempt, Progress(0, 10, steps=50, step_seconds=0.2)),), yard.now))
    view = training_view(yard.state, job)
    assert view is not None
    assert view.steps_per_epoch == 125
    assert view.epoch_seconds == pytest.approx(25.0)
    assert view.eta_seconds == pytest.approx(250.0)
    tell(yard, attempt, 1, 30.0)
    view = training_view(yard.state, job)
    assert view is not None
    assert view.epoch_seconds == 30.0
