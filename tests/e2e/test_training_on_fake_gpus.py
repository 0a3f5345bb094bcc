"""What the yard does with GPUs that several jobs want: they grow, share by what is measured, and get more memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.waiting import until
from tests.yards import TemporaryYard

pytestmark = pytest.mark.slow
WAIT = "while [ ! -e {} ]; do sleep 0.02; done"
HOLD = f"{sys.executable} -m jobyard.agent.devices.fake_gpu hold"

# Many short epochs; tells on how many GPUs each attempt ran. Ends by itself only if `enough` is there.
TRAIN = """
import os, time
from jobyard.sdk import yard_job
job = yard_job()
print(len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")), flush=True)
for epoch in job.epochs(10_000):
    time.sleep(0.4 / len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")))
    job.measure()
    (job.checkpoint_dir / "epoch").write_text(str(epoch))
    job.saved()
    if os.path.exists("enough"):
        break
"""


@pytest.fixture
def gpus() -> Iterator[TemporaryYard]:
    with TemporaryYard(JOBYARD_FAKE_GPUS="2x16GiB") as yard:
        yard.write("train.py", TRAIN)
        yield yard


def training(yard: TemporaryYard, job: str) -> dict[str, Any]:
    """Of a job that was not said to train there is none before its first report."""
    found: dict[str, Any] | None = yard.job(job)["training"]
    return found or {"epochs_done": 0}


def reserved(yard: TemporaryYard) -> list[int]:
    return [device["reserved_mib"] for device in yard.json("nodes")[0]["devices"]]


def test_a_finishing_job_makes_its_neighbour_grow(gpus: TemporaryYard) -> None:
    neighbour = gpus.submit("--cpus", "0", "--gpus", "1", "--", WAIT.format("over"))
    gpus.wait_state(neighbour, "RUNNING")
    job = gpus.submit("--cpus", "0", "--gpus", "1..2", "--", sys.executable, "train.py")
    until(lambda: training(gpus, job)["epochs_done"] >= 2)
    assert gpus.logs(job) == "1\n"
    gpus.write("over", "")
    until(lambda: training(gpus, job)["resizes"] == 1)
    until(lambda: gpus.logs(job) == "2\n")
    done = training(gpus, job)["epochs_done"]
    until(lambda: training(gpus, job)["epochs_done"] > done)
    gpus.write("enough", "")
    assert gpus.run("wait", job).code == 0
    assert training(gpus, job)["size"] == "2 GPUs"


def test_a_ramping_job_does_not_take_the_memory_of_its_neighbour(gpus: TemporaryYard) -> None:
    """Each has allocated little when the next one comes: what counts is what they will take."""
    script = f"{HOLD} 9GiB --ramp 2 -- bash -c '{WAIT.format('enough')}'"
    jobs = [gpus.submit("--cpus", "0", "--gpu-mem", "9GiB", "--", script) for _ in range(3)]
    for job in jobs[:2]:
        gpus.wait_state(job, "RUNNING")
    assert reserved(gpus) == [9216, 9216]
    assert gpus.job(jobs[2])["state"] == "PENDING"
    until(lambda: all(device["used_mib"] == 9216 for device in gpus.json("nodes")[0]["devices"]), 30)
    gpus.write("enough", "")
    assert gpus.run("wait", *jobs).code == 0
    assert [gpus.tasks(job)[0]["attempt"] for job in jobs] == [1, 1, 1]


def test_a_job_that_ran_out_of_gpu_memory_tries_again_with_more_and_its_kind_remembers(gpus: TemporaryYard) -> None:
    filler = gpus.submit("--cpus", "0", "--gpus", "1", "--", WAIT.format("enough"))
    gpus.wait_state(filler, "RUNNING")
    beside = gpus.submit("--cpus", "0", "--gpu-mem", "8GiB", "--", f"{HOLD} 8GiB -- bash -c '{WAIT.format('room')}'")
    gpus.wait_state(beside, "RUNNING")
    # 10 GiB beside 8 of 16: it runs out, waits for as much as it will get, and starts when its neighbour has gone.
    words = ("--cpus", "0", "--gpu-mem", "7GiB", "--", f"{HOLD} 10GiB -- true")
    job = gpus.submit(*words)
    until(lambda: gpus.job(job)["state"] == "PENDING" and gpus.tasks(job)[0]["reason"] == "OutOfGpuMemory", 30)
    gpus.write("room", "")
    assert gpus.run("wait", job).code == 0
    assert gpus.tasks(job)[0]["attempt"] == 2
    again = gpus.submit(*words)
    assert gpus.run("wait", again).code == 0
    assert gpus.tasks(again)[0]["attempt"] == 1
    gpus.write("enough", "")
    assert gpus.run("wait", filler, beside).code == 0


def test_what_a_job_is_seen_to_need_lets_another_one_in(gpus: TemporaryYard) -> None:
    """Declared far too much; after a few epochs the yard knows better, and one that was refused fits."""
    filler = gpus.submit("--cpus", "0", "--gpus", "1", "--", WAIT.format("enough"))
    gpus.wait_state(filler, "RUNNING")
    modest = gpus.submit("--cpus", "0", "--gpu-mem", "14GiB", "--", f"{HOLD} 2GiB -- {sys.executable} train.py")
    until(lambda: training(gpus, modest)["epochs_done"] >= 1)
    guest = gpus.submit("--cpus", "0", "--gpu-mem", "6GiB", "--", f"{HOLD} 5GiB -- true")
    assert gpus.run("wait", guest).code == 0
    assert gpus.job(modest)["state"] == "RUNNING"
    gpus.write("enough", "")
    assert gpus.run("wait", modest, filler).code == 0
