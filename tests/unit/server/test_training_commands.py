"""What is asked of training jobs becomes events, or one sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobyard.engine.handling import handle
from jobyard.engine.job_record import JobRecord
from jobyard.engine.lifecycle import YieldAsked, advance
from jobyard.engine.yard_state import YardState
from jobyard.errors import NotFound, UserError
from jobyard.model.events import CancelRequested, ScaleRequested, YieldRequested
from jobyard.model.job import Reason, State
from jobyard.model.task import ActiveAttempt
from jobyard.model.training import ALL, Elastic, Progress, Size, Training
from jobyard.server.training_commands import scale_job, yield_job
from jobyard.wire.requests import ScaleJob
from tests.builders import a_job, a_node, joined, submitted

CAN_YIELD = Progress(epochs_done=3, epochs_total=10, can_yield=True)


def a_state(progress: Progress | None = None, *, runs: bool = True, **spec: Any) -> tuple[YardState, JobRecord]:
    state = YardState()
    handle(state, joined(a_node(cpus=100, gpus=64)))
    handle(state, submitted("j1", 1, a_job(gpus=1, **spec)))
    job = state.jobs["j1"]
    if runs:
        job.put(replace(job.task(0), state=State.RUNNING, attempt=1, active=ActiveAttempt("1")))
    if progress is not None:
        job.training.progress[0] = progress
    return state, job


@pytest.fixture(autouse=True)
def _slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """These jobs run without slots: their active tasks are those that their states say."""
    monkeypatch.setattr(
        JobRecord,
        "active_tasks",
        lambda self: iter([task for task in self.tasks.known.values() if task.state.is_active]),
    )


def test_a_job_that_can_is_asked_to_stop_and_goes_to_the_back() -> None:
    state, _ = a_state(CAN_YIELD)
    events, job = yield_job("j1")(state, 7.0)
    message = "stopped at a checkpoint by the user"
    assert (events, job) == ([YieldRequested("j1", Reason.PREEMPTED, message, 7.0, to_the_back=True)], "j1")


def test_a_preemptible_job_need_not_have_said_anything() -> None:
    state, _ = a_state(training=Training(preemptible=True))
    assert len(yield_job("j1")(state, 7.0)[0]) == 1


def test_a_job_that_is_not_preempted_for_others_obeys_its_user() -> None:
    state, _ = a_state(CAN_YIELD, training=Training(preemptible=False))
    assert len(yield_job("j1")(state, 7.0)[0]) == 1


def test_asking_twice_is_no_error() -> None:
    state, job = a_state(CAN_YIELD)
    job.put(advance(job.task(0), YieldAsked(Reason.PREEMPTED, "")).task)
    assert yield_job("j1")(state, 7.0) == ([], "j1")


def test_a_job_that_cannot_stop_at_a_checkpoint_is_told_so() -> None:
    state, _ = a_state(Progress(epochs_done=3))
    with pytest.raises(UserError, match="job 1 has not said that it stops at a checkpoint; `yard cancel 1` ends it"):
        yield_job("j1")(state, 7.0)


def test_the_last_epoch_is_never_stopped() -> None:
    state, _ = a_state(replace(CAN_YIELD, epochs_done=9))
    with pytest.raises(UserError, match="job 1 is in its last epoch"):
        yield_job("j1")(state, 7.0)


def test_what_waits_has_nothing_to_stop() -> None:
    state, _ = a_state(CAN_YIELD, runs=False)
    with pytest.raises(UserError, match="job 1 waits already"):
        yield_job("j1")(state, 7.0)


@pytest.mark.parametrize("command", [yield_job("j1"), scale_job("j1", ScaleJob(auto=True))])
def test_what_has_ended_or_is_ending_cannot_be_changed(command: Any) -> None:
    state, job = a_state(CAN_YIELD, elastic=Elastic(gpus=(1, 4)))
    job.stop = (Reason.CANCELLED, "cancelled by the user")
    with pytest.raises(UserError, match=r"job 1 is being stopped \(cancelled by the user\)"):
        command(state, 7.0)
    waits, _ = a_state(runs=False)
    handle(waits, CancelRequested("j1", 1.0))
    with pytest.raises(UserError, match=r"job 1 has ended \(cancelled\)"):
        command(waits, 7.0)
    with pytest.raises(NotFound):
        command(YardState(), 7.0)


@pytest.mark.parametrize(
    ("elastic", "asked", "size"),
    [
        (Elastic(gpus=(1, 4)), ScaleJob(size=4), Size(1, 4)),
        (Elastic(gpus=(1, 4)), ScaleJob(gpus=2), Size(1, 2)),
        (Elastic(gpus=(1, ALL)), ScaleJob(size=64), Size(1, 64)),
        (Elastic(workers=(1, 4)), ScaleJob(size=3), Size(3, 1)),
        (Elastic((1, 4), (1, 4)), ScaleJob(workers=3), Size(3, 1)),
        (Elastic((1, 4), (1, 4)), ScaleJob(workers=3, gpus=2), Size(3, 2)),
        (Elastic(gpus=(1, 4)), ScaleJob(auto=True), None),
    ],
)
def test_a_size_within_the_range_is_asked_for(elastic: Elastic, asked: ScaleJob, size: Size | None) -> None:
    state, _ = a_state(CAN_YIELD, elastic=elastic)
    assert scale_job("j1", asked)(state, 7.0) == ([ScaleRequested("j1", size, 7.0)], "j1")


@pytest.mark.parametrize(
    ("elastic", "asked", "says"),
    [
        (None, ScaleJob(size=2), "job 1 has one size; submit it with a range, as in --gpus 1..8"),
        (Elastic(gpus=(1, 4)), ScaleJob(size=8), "job 1 can have 1 to 4 GPUs, not 8"),
        (Elastic(gpus=(2, ALL)), ScaleJob(size=1), "job 1 can have 2 or more GPUs, not 1"),
        (Elastic(workers=(1, 4)), ScaleJob(size=0), "job 1 can have 1 to 4 workers, not 0"),
        (Elastic(workers=(1, 4)), ScaleJob(gpus=2), "job 1 cannot change how many GPUs it has"),
        (Elastic((1, 4), (1, 4)), ScaleJob(size=2), "say --gpus N or --workers N"),
        (Elastic(gpus=(1, 4)), ScaleJob(), "job 1: say one size"),
        (Elastic(gpus=(1, 4)), ScaleJob(size=2, gpus=2), "job 1: say one size"),
        (Elastic(gpus=(1, 4)), ScaleJob(size=2, auto=True), "job 1: auto and a size were asked for; say one of them"),
    ],
)
def test_another_size_gets_one_sentence(elastic: Elastic | None, asked: ScaleJob, says: str) -> None:
    state, _ = a_state(CAN_YIELD, elastic=elastic)
    with pytest.raises(UserError) as caught:
        scale_job("j1", asked)(state, 7.0)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_running_job_must_be_able_to_stop_before_it_changes() -> None:
    state, _ = a_state(Progress(), elastic=Elastic(gpus=(1, 4)))
    with pytest.raises(UserError, match="job 1 runs and has not said that it stops at a checkpoint"):
        scale_job("j1", ScaleJob(size=2))(state, 7.0)
    waits, _ = a_state(runs=False, elastic=Elastic(gpus=(1, 4)))
    assert len(scale_job("j1", ScaleJob(size=2))(waits, 7.0)[0]) == 1


def test_a_size_that_no_node_has_is_refused() -> None:
    state, _ = a_state(CAN_YIELD, elastic=Elastic(gpus=(1, ALL)))
    with pytest.raises(UserError, match="job 1 can never have 1000 GPUs"):
        scale_job("j1", ScaleJob(size=1000))(state, 7.0)


def test_the_last_epoch_is_not_stopped_for_another_size() -> None:
    state, _ = a_state(replace(CAN_YIELD, epochs_done=9), elastic=Elastic(gpus=(1, ALL)))
    with pytest.raises(UserError, match="last epoch"):
        scale_job("j1", ScaleJob(size=2))(state, 7.0)
