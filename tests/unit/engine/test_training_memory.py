"""Memory of training jobs: what is measured, shared, and given to those that ran out of it?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobyard.cli.output.summary import summary_lines
from jobyard.engine.training import given_more
from jobyard.model.effects import Reserve
from jobyard.model.job import Reason, State
from jobyard.model.task import AttemptId
from jobyard.model.training import Training
from jobyard.server.views import job_view
from tests.builders import a_group, a_job, a_node
from tests.unit.engine.driving import state_of
from tests.unit.engine.training_yard import TrainingYard, a_training, report

GIB = 1024


@pytest.fixture
def yard() -> TrainingYard:
    return TrainingYard(a_node(gpus=2))


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
