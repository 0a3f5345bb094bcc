"""GPUs, where there are none: shown as fake, shared by memory, running out of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.waiting import until
from tests.yards import TemporaryYard

WAIT = "while [ ! -e {} ]; do sleep 0.02; done"
HOLD = f"{sys.executable} -m jobyard.agent.devices.fake_gpu hold"


@pytest.fixture(scope="module")
def gpu_yard() -> Iterator[TemporaryYard]:
    with TemporaryYard(JOBYARD_FAKE_GPUS="2x16GiB") as yard:
        yield yard


@pytest.fixture
def gpus(gpu_yard: TemporaryYard) -> Iterator[TemporaryYard]:
    yield gpu_yard
    gpu_yard.settle()


def test_fake_gpus_are_shown_as_fake_wherever_they_are(gpus: TemporaryYard) -> None:
    assert gpus.ok("nodes").out.count("(fake)") == 2
    assert all(device["fake"] for device in gpus.json("nodes")[0]["devices"])
    assert "(fake)" in gpus.ok("doctor").out
    refused = gpus.run("run", "--gpus", "3", "--", "true")
    assert refused.code == 2
    assert "(fake)" in refused.err


def test_a_whole_gpu_is_for_one_task_alone(gpus: TemporaryYard) -> None:
    script = f"echo $CUDA_VISIBLE_DEVICES; {WAIT.format('whole')}"
    jobs = [gpus.submit("--cpus", "0.1", "--gpus", "1", "--", script) for _ in range(3)]
    for job in jobs[:2]:
        gpus.wait_state(job, "RUNNING")
    assert {gpus.logs(job).strip() for job in jobs[:2]} == {"0", "1"}
    assert gpus.job(jobs[2])["state"] == "PENDING"
    assert "0 free GPUs of 2" in gpus.ok("why", jobs[2]).out
    gpus.write("whole", "")
    assert gpus.run("wait", *jobs).code == 0


def test_two_tasks_share_a_device_by_memory_and_a_third_waits(gpus: TemporaryYard) -> None:
    script = f"echo $CUDA_VISIBLE_DEVICES; {WAIT.format('shared')}"
    first = [gpus.submit("--cpus", "0.1", "--gpu-mem", "8GiB", "--", script) for _ in range(4)]
    for job in first:
        gpus.wait_state(job, "RUNNING")
    devices = [gpus.logs(job).strip() for job in first]
    assert sorted(devices) == ["0", "0", "1", "1"]
    assert [device["reserved_mib"] for device in gpus.json("nodes")[0]["devices"]] == [16384, 16384]
    waiting = gpus.submit("--cpus", "0.1", "--gpu-mem", "8GiB", "--", "true")
    until(lambda: "GPUs with 8 GiB free" in gpus.ok("why", waiting).out)
    gpus.write("shared", "")
    assert gpus.run("wait", *first, waiting).code == 0


def test_shares_of_compute_fill_a_device_and_the_next_task_waits(gpus: TemporaryYard) -> None:
    script = f"echo $CUDA_VISIBLE_DEVICES; {WAIT.format('computed')}"
    first = [gpus.submit("--cpus", "0.1", "--gpu-util", "50%", "--", script) for _ in range(4)]
    for job in first:
        gpus.wait_state(job, "RUNNING")
    assert sorted(gpus.logs(job).strip() for job in first) == ["0", "0", "1", "1"]
    assert [device["reserved_percent"] for device in gpus.json("nodes")[0]["devices"]] == [100, 100]
    waiting = gpus.submit("--cpus", "0.1", "--gpu-util", "0.1", "--", "true")
    until(lambda: "GPUs with 10 % of compute free" in gpus.ok("why", waiting).out)
    gpus.write("computed", "")
    assert gpus.run("wait", *first, waiting).code == 0


def test_a_task_alone_on_a_node_has_all_its_gpus_and_nobody_beside_it(gpus: TemporaryYard) -> None:
    script = f"echo $CUDA_VISIBLE_DEVICES; {WAIT.format('alone')}"
    alone = gpus.submit("--exclusive", "--cpus", "0.1", "--", script)
    gpus.wait_state(alone, "RUNNING")
    assert gpus.logs(alone) == "0,1\n"
    (node,) = gpus.json("nodes")
    assert node["cpu_millis_reserved"] == node["cpu_millis"]
    beside = gpus.submit("--cpus", "0", "--", "true")
    until(lambda: "has a task that was given all of it" in gpus.ok("why", beside).out)
    gpus.write("alone", "")
    assert gpus.run("wait", alone, beside).code == 0


def test_what_a_stranger_holds_is_left_to_it(gpus: TemporaryYard) -> None:
    """It holds half of one GPU, and all of that one's compute: it can be shared by memory, and the other one be had."""
    env = {**gpus.env, "JOBYARD_FAKE_GPUS": "2x16GiB"}
    words = [sys.executable, "-m", "jobyard.agent.devices.fake_gpu", "hold", "8GiB", "--device", "0"]
    with subprocess.Popen(words, env=env) as stranger:
        try:
            until(lambda: gpus.json("nodes")[0]["devices"][0]["foreign_mib"] == 8192, 30)
            assert gpus.json("nodes")[0]["devices"][0]["percent"] == 100
            show = "echo $CUDA_VISIBLE_DEVICES"
            assert gpus.ok("run", "--gpus", "1", "--", show).out == "1\n"
            assert gpus.ok("run", "--gpu-mem", "2GiB", "--", show).out == "0\n"
            assert gpus.ok("run", "--gpu-mem", "2GiB", "--gpu-util", "0.2", "--", show).out == "1\n"
            whole = gpus.submit("--exclusive", "--", "true")
            until(lambda: "has others on it" in gpus.ok("why", whole).out)
        finally:
            stranger.terminate()
    assert gpus.run("wait", whole).code == 0


def test_a_task_may_have_several_gpus_and_one_without_sees_none(gpus: TemporaryYard) -> None:
    assert gpus.ok("run", "--gpus", "2", "--", "echo $CUDA_VISIBLE_DEVICES").out == "0,1\n"
    assert gpus.ok("run", "--", 'echo "[$CUDA_VISIBLE_DEVICES]"').out == "[]\n"


def test_too_much_gpu_memory_is_told_as_what_it_is(gpus: TemporaryYard) -> None:
    done = gpus.run("run", "--gpu-mem", "8GiB", "--", f"{HOLD} 20GiB -- sleep 30")
    assert done.code == 1
    assert gpus.job()["reason"] == "OutOfGpuMemory"
    assert "OutOfGpuMemory" in done.err
    assert gpus.run("run", "--gpu-mem", "8GiB", "--", f"{HOLD} 7GiB -- true").code == 0


def test_a_task_that_filled_a_whole_gpu_is_not_tried_again_and_says_what_it_needs(gpus: TemporaryYard) -> None:
    done = gpus.run("run", "--gpus", "1", "--retries", "3", "--", f"{HOLD} 20GiB -- sleep 30")
    assert done.code == 1
    (task,) = gpus.tasks(gpus.job()["id"])
    assert (task["attempt"], task["reason"]) == (1, "OutOfGpuMemory")
    assert "needs more GPU memory than a" in task["message"]
    assert "--min-gpu-mem" in task["message"]


def test_the_least_memory_of_a_gpu_counts_on_this_machine(gpus: TemporaryYard) -> None:
    refused = gpus.run("run", "--gpus", "1", "--min-gpu-mem", "40", "--", "true")
    assert refused.code == 2
    assert "1 GPU of at least 40 GiB" in refused.err
    planned = gpus.ok("run", "--dry-run", "--gpus", "1", "--min-gpu-mem", "16", "--", "true")
    assert "1 GPU of at least 16 GiB" in planned.out
    seen = gpus.ok("run", "--gpus", "1", "--min-gpu-mem", "16", "--", "echo $CUDA_VISIBLE_DEVICES").out
    assert seen in ("0\n", "1\n")


def test_a_gpu_is_never_promised_beyond_its_memory(gpus: TemporaryYard) -> None:
    refused = gpus.run("run", "--gpu-mem", "17GiB", "--", "true")
    assert refused.code == 2
    assert "16 GiB" in refused.err


def test_of_two_kinds_on_one_machine_each_task_has_its_own_and_what_nobody_has_is_refused() -> None:
    show = "echo $CUDA_VISIBLE_DEVICES"
    with TemporaryYard(JOBYARD_FAKE_GPUS="2xH100:80GiB,1xA100:40GiB") as yard:
        names = [device["name"] for device in yard.json("nodes")[0]["devices"]]
        assert names == ["fake H100", "fake H100", "fake A100"]
        assert yard.ok("run", "--gpus", "h100:2", "--", show).out == "0,1\n"
        assert yard.ok("run", "--gpu-type", "A100", "--", show).out == "2\n"
        assert yard.ok("run", "--gpu-type", "h100", "--gpu-mem", "4G", "--", show).out in ("0\n", "1\n")
        yard.write("job.yaml", f"command: {show}\nresources: {{gpus: 1, gpu_type: a100, min_gpu_mem: 30}}\n")
        assert yard.ok("run", "job.yaml").out == "2\n"
        assert "1 A100 GPU of at least 30 GiB" in yard.ok("show", yard.job()["id"]).out.replace("a100", "A100")
        refused = yard.run("run", "--gpus", "b200:1", "--", "true")
        assert refused.code == 2
        assert "there is no b200 GPU; there are fake H100 (fake) on " in refused.err
        profile = yard.run("run", "--gpu-type", "mig-1g.10gb", "--", "true")
        assert profile.code == 2
        assert "there is no mig-1g.10gb GPU; there are fake H100 (fake) on " in profile.err
