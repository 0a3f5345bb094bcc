"""Jobs that report: they yield at a checkpoint, resume, change their size, share GPUs and get more memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobyard.cli.output.summary import summary_lines
from jobyard.engine.handling import handle
from jobyard.engine.job_record import JobRecord
from jobyard.engine.training import given_more, has_overrun, resumes_at
from jobyard.engine.yard_state import YardState
from jobyard.model.effects import Effect, Reserve, Stop, Yield
from jobyard.model.events import (
    AttemptsMeasured,
    AttemptsProgressed,
    CancelRequested,
    NodeDrained,
    NodeRemoved,
    NodeResumed,
    Progressed,
    RetryRequested,
    ScaleRequested,
    Used,
    YieldRequested,
)
from jobyard.model.job import JobSpec, Reason, State
from jobyard.model.task import AttemptId
from jobyard.model.training import Elastic, Epoch, Progress, Size, Training
from jobyard.server.views import job_view
from tests.builders import a_group, a_job, a_node
from tests.unit.engine.driving import Yard, state_of

GIB = 1024


def a_training(**spec: Any) -> JobSpec:
    spec.setdefault("training", Training(epochs=10))
    return a_job(**{"cpus": 0, "gpus": 1, **spec})


def report(done: int, total: int = 10, seconds: float = 60.0, **more: Any) -> Progress:
    history = tuple(Epoch(number + 1, seconds) for number in range(done))
    known: dict[str, Any] = {"can_yield": True, "epoch_seconds": seconds if done else 0.0, "history": history}
    return Progress(done, total, **{**known, "saved_at": 1.0 if done else 0.0, "restart_seconds": 5.0, **more})


class TrainingYard(Yard):
    def begin(self, job: JobRecord) -> AttemptId:
        """The job's first task runs; answers with its attempt."""
        attempts = self.active(job, State.STARTING)
        self.start(*attempts)
        return attempts[0]

    def progress(self, attempt: AttemptId, progress: Progress) -> list[Effect]:
        return self.apply(AttemptsProgressed((Progressed(attempt, progress),), self.now))

    def use(self, attempt: AttemptId, mib: int, percent: int | None = 50) -> list[Effect]:
        return self.apply(AttemptsMeasured(self.now, used=(Used(attempt, 100, mib, percent),)))

    def yield_now(self, job: JobRecord, **more: Any) -> list[Effect]:
        return self.apply(YieldRequested(job.id, Reason.PREEMPTED, "asked", self.now, **more))

    def stop_at_checkpoint(self, job: JobRecord, progress: Progress | None = None) -> None:
        attempts = self.active(job, State.STOPPING)
        self.finish(*attempts, exit_code=85, reason=Reason.PREEMPTED, progress=progress)


@pytest.fixture
def yard() -> TrainingYard:
    return TrainingYard(a_node(gpus=2))


# -- yield


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


# -- sizes


def an_elastic(least: int = 1, most: int = 4, **spec: Any) -> JobSpec:
    return a_training(gpus=least, elastic=Elastic(gpus=(least, most)), **spec)


def gpus_of(yard: Yard, job: JobRecord) -> list[int]:
    return [piece.index for record in job.slots.values() for piece in record.slot.placement.devices]


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


# -- GPU memory


def test_what_is_measured_replaces_what_was_declared_once_it_is_steady() -> None:
    yard = TrainingYard(a_node(gpus=1, gpu_mib=80 * GIB))
    job = yard.submit(a_training(gpu_mem=40 * GIB))
    attempt = yard.begin(job)
    yard.use(attempt, 10 * GIB)
    assert not yard.found(Reserve)
    yard.progress(attempt, report(2))
    (reserved,) = yard.found(Reserve)
    assert reserved.slot.placement.devices[0].memory_mib == 11 * GIB
    again = yard.submit(a_training(gpu_mem=40 * GIB))
    assert again.slots[next(iter(again.slots))].slot.placement.devices[0].memory_mib == 11 * GIB


def test_who_uses_more_than_it_declared_holds_more() -> None:
    yard = TrainingYard(a_node(gpus=1, gpu_mib=80 * GIB))
    job = yard.submit(a_training(gpu_mem=10 * GIB))
    yard.use(yard.begin(job), 20 * GIB)
    (reserved,) = yard.found(Reserve)
    assert reserved.slot.placement.devices[0].memory_mib == 20 * GIB


def test_a_job_that_ran_out_of_gpu_memory_tries_again_with_more_and_the_next_of_its_kind_starts_wise() -> None:
    yard = TrainingYard(a_node(gpus=1, gpu_mib=80 * GIB))
    job = yard.submit(a_training(gpu_mem=10 * GIB))
    attempt = yard.begin(job)
    yard.finish(attempt, exit_code=1, reason=Reason.OUT_OF_GPU_MEMORY, peak_gpu_memory_mib=10 * GIB)
    assert yard.launched() == [AttemptId(job.id, 0, 2)]
    held = job.slots[job.task(0).slot].slot.placement.devices[0].memory_mib
    assert held > 10 * GIB
    assert job.task(0).failures == 0
    yard.finish(*yard.active(job))
    next_one = yard.submit(a_training(gpu_mem=10 * GIB))
    assert next_one.slots[next_one.task(0).slot].slot.placement.devices[0].memory_mib >= held


def test_tasks_that_run_out_of_memory_together_learn_one_lesson() -> None:
    yard = TrainingYard(a_node(gpus=1, gpu_mib=80 * GIB))
    job = yard.submit(a_training(tasks=8, gpu_mem=8 * GIB, training=None))
    attempts = yard.active(job)
    yard.start(*attempts)
    yard.finish(*attempts, exit_code=1, reason=Reason.OUT_OF_GPU_MEMORY, peak_gpu_memory_mib=8 * GIB)
    assert (job.tasks.counts[State.FAILED], job.memory.requeues) == (0, 1)


def test_who_was_alone_on_a_small_device_is_alone_on_the_largest() -> None:
    yard = TrainingYard(a_node("small", gpus=1, gpu_mib=16 * GIB), a_node("large", gpus=1, gpu_mib=80 * GIB))
    job = yard.submit(a_training(on="small,large"))
    assert job.task(0).node == "small"
    yard.finish(yard.begin(job), exit_code=1, reason=Reason.OUT_OF_GPU_MEMORY)
    assert job.task(0).node == "large"
    assert job.slots[job.task(0).slot].slot.placement.devices[0].memory_mib == 80 * GIB


def test_one_glance_after_a_restart_makes_no_reservation_smaller(yard: TrainingYard) -> None:
    """What was measured is not in the journal; epochs that were done before anybody looked prove nothing."""
    job = yard.submit(a_training(gpu_mem=40 * GIB))
    attempt = yard.begin(job)
    yard.progress(attempt, report(5, 100))
    yard.use(attempt, 3 * GIB)
    assert not yard.found(Reserve)


def test_who_had_the_largest_device_alone_and_ran_out_of_memory_has_failed() -> None:
    yard = TrainingYard(a_node(gpus=1))
    job = yard.submit(a_training())
    yard.finish(yard.begin(job), exit_code=1, reason=Reason.OUT_OF_GPU_MEMORY)
    assert (state_of(job), job.task(0).reason) == (State.FAILED, Reason.OUT_OF_GPU_MEMORY)


def test_who_had_the_largest_device_alone_is_not_tried_again_whatever_its_retries() -> None:
    yard = TrainingYard(a_node(gpus=1, gpu_mib=143155))
    job = yard.submit(a_training(retries=3))
    yard.finish(yard.begin(job), exit_code=1, reason=Reason.OUT_OF_GPU_MEMORY, message="ran out of GPU memory")
    assert (state_of(job), job.task(0).attempt) == (State.FAILED, 1)
    assert job.task(0).message == (
        "ran out of GPU memory; it needs more GPU memory than a FakeGPU (139.8 GiB, fake) has; "
        "ask for a larger GPU with --min-gpu-mem, or for less of it, as with a smaller batch"
    )


def test_who_grew_to_the_whole_of_the_largest_device_is_not_tried_again_either() -> None:
    yard = TrainingYard(a_node(gpus=1, gpu_mib=24 * GIB))
    job = yard.submit(a_training(gpu_mem=16 * GIB, retries=3))
    yard.finish(yard.begin(job), exit_code=1, reason=Reason.OUT_OF_GPU_MEMORY, peak_gpu_memory_mib=16 * GIB)
    assert job.slots[job.task(0).slot].slot.placement.devices[0].memory_mib == 24 * GIB
    yard.finish(yard.begin(job), exit_code=1, reason=Reason.OUT_OF_GPU_MEMORY, peak_gpu_memory_mib=24 * GIB)
    assert (state_of(job), job.task(0).attempt) == (State.FAILED, 2)


def test_a_gang_that_had_whole_devices_does_not_begin_again_in_vain() -> None:
    yard = TrainingYard(a_node(gpus=2))
    job = yard.submit(a_training(tasks=2, gang=True, retries=3))
    yard.begin(job)
    first, second = yard.active(job)
    yard.finish(first, exit_code=1, reason=Reason.OUT_OF_GPU_MEMORY)
    assert yard.stopped() == [second]
    yard.finish(second, signal=15)
    assert state_of(job) is State.FAILED


def test_a_full_gpu_sends_a_job_to_the_next_larger_kind_that_it_may_have_and_has_as_many_of() -> None:
    large = replace(a_node("large", gpus=2, gpu_mib=80 * GIB), labels=("mine",))
    forbidden = a_node("forbidden", gpus=2, gpu_mib=40 * GIB)
    single = replace(a_node("single", gpus=1, gpu_mib=40 * GIB), labels=("mine",))
    small = replace(a_node("small", gpus=2, gpu_mib=16 * GIB), labels=("mine",))
    yard = TrainingYard(small, single, forbidden, large)
    job = yard.submit(a_training(gpus=2, on="mine"))
    assert job.task(0).node == "small"
    yard.finish(yard.begin(job), exit_code=1, reason=Reason.OUT_OF_GPU_MEMORY)
    assert job.task(0).node == "large"
    assert not job.slots[job.task(0).slot].slot.placement.resources.shares_gpus
    yard.finish(yard.begin(job), exit_code=1, reason=Reason.OUT_OF_GPU_MEMORY)
    assert state_of(job) is State.FAILED


def test_a_tokens_job_is_promised_no_gpu_of_the_owners_own_machine() -> None:
    owners = a_node("owners", gpus=1, gpu_mib=80 * GIB, owner_only=True)
    yard = TrainingYard(a_node("small", gpus=1, gpu_mib=16 * GIB), owners)
    job = yard.submit(a_training(gpus=1, submitted_with="t1"))
    assert job.task(0).node == "small"
    yard.finish(yard.begin(job), exit_code=1, reason=Reason.OUT_OF_GPU_MEMORY)
    assert state_of(job) is State.FAILED


def test_the_least_memory_of_a_gpu_counts_on_machines() -> None:
    mixed = a_node("mixed", gpus=2, gpu_mib=16 * GIB)
    mixed = replace(mixed, devices=(mixed.devices[0], replace(mixed.devices[1], memory_mib=80 * GIB)))
    yard = TrainingYard(a_node("small", gpus=4, gpu_mib=16 * GIB), mixed)
    group = replace(a_group(cpus=0, gpus=1), completions=2, least_device_mib=40 * GIB)
    job = yard.submit(a_job(groups=(group,)))
    (record,) = job.slots.values()
    assert (record.slot.placement.node, record.slot.placement.devices[0].index) == ("mixed", 1)
    wait = yard.planner.waits[job.id]
    assert "1 GPU of at least 40 GiB" in wait.sentence
    assert "0 free GPUs (each of at least 40 GiB) of 2" in wait.sentence


def test_a_job_that_asks_for_a_larger_gpu_than_any_machine_has_never_fits() -> None:
    yard = TrainingYard(a_node(gpus=2, gpu_mib=16 * GIB))
    job = yard.submit(a_job(groups=(replace(a_group(cpus=0, gpus=1), least_device_mib=40 * GIB),)))
    wait = yard.planner.waits[job.id]
    assert wait.reason is Reason.NEVER_FITS
    assert wait.sentence.startswith("a task needs 0 cpus, 1 GPU of at least 40 GiB; the largest node, here, has")


def test_out_of_memory_gets_twice_as_much_and_fails_where_there_is_no_more() -> None:
    yard = TrainingYard(a_node(memory_mib=4096))
    job = yard.submit(a_job(mem=1024))
    for expected in (2048, 4096):
        yard.finish(yard.begin(job), signal=9, reason=Reason.OUT_OF_MEMORY)
        assert job.slots[job.task(0).slot].slot.placement.resources.memory_mib == expected
    yard.finish(yard.begin(job), signal=9, reason=Reason.OUT_OF_MEMORY)
    assert state_of(job) is State.FAILED
    told = "it ran out of memory 2 times, and was given 4 GiB of memory; --mem gives it that from its start"
    assert given_more(job) == told
    view = job_view(yard.planner, job)
    assert view.given_more == told
    assert f"yard: note: {told}" in summary_lines(view, was_streamed=True)


def test_an_idle_gpu_stops_a_job_that_asked_for_it_and_no_other(yard: TrainingYard) -> None:
    asked = Training(idle_gpu_stop=True, idle_gpu_seconds=60)
    jobs = [
        yard.submit(a_training(training=asked)),
        yard.submit(a_training(training=replace(asked, idle_gpu_stop=False))),
    ]
    attempts = [yard.begin(job) for job in jobs]
    for attempt in attempts:
        yard.use(attempt, 100, percent=0)
    yard.now += 61
    for attempt in attempts:
        yard.use(attempt, 100, percent=0)
    assert [state_of(job) for job in jobs] == [State.STOPPING, State.RUNNING]


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
