"""Training on a machine behind a real sshd: it reports over the link, yields at a checkpoint, and goes on there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import Hosts
from tests.waiting import until
from tests.yards import TemporaryYard

pytestmark = pytest.mark.slow

# Appends each epoch that it does to its checkpoint; the whole story comes home as a result. Both tests ask its first
# attempt to stop: it waits for that before the last epoch but one, because the last one is never cut off.
SCRIPT = """
import os, shutil, time
from jobyard.sdk import yard_job
job = yard_job()
path = job.checkpoint_dir / "epochs"
for epoch in job.epochs(12):
    for _ in range(5):
        time.sleep(0.1)
        job.step(loss=1 / (1 + epoch))
    while epoch == 9 and os.environ["YARD_ATTEMPT"] == "1" and not job.should_stop:
        time.sleep(0.1)
    with open(path, "a") as file:
        file.write(f"{epoch}\\n")
    job.saved()
shutil.copy(path, "story")
"""

# Rank 0 waits where MASTER_ADDR says that it is; the other one finds it there.
MEET = """
import os, socket, time
rank, where = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(("", where[1])) as server:
        server.accept()[0].sendall(b"hello from rank 0")
else:
    deadline = time.monotonic() + 60
    while True:
        try:
            link = socket.create_connection(where, timeout=5)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    print(link.recv(100).decode(), flush=True)
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[TemporaryYard]:
    with (
        Hosts(2, environment={"JOBYARD_FAKE_GPUS": "2x16GiB"}) as hosts,
        TemporaryYard(YARD_SSH_CONFIG=str(hosts.config_file), YARD_ALIVE_SECONDS="1") as yard,
    ):
        yard.ok("nodes", "add", "gpu1", "gpu2", "--label", "lab")
        yield yard


def submit(lab: TemporaryYard, directory: Path, *words: str) -> str:
    lab.work = directory
    (directory / "train.py").write_text(SCRIPT)
    return lab.submit("--on", "lab", "--cpus", "0", "--epochs", "12", *words, "--", "python3", "train.py")


def training(lab: TemporaryYard, job: str) -> dict[str, Any]:
    found: dict[str, Any] = lab.job(job)["training"]
    return found


def story(directory: Path) -> list[int]:
    (found,) = (directory / "job_results").rglob("story")
    return [int(line) for line in found.read_text().split()]


def test_it_reports_over_the_link_yields_and_goes_on_where_its_checkpoint_is(
    lab: TemporaryYard, tmp_path: Path
) -> None:
    job = submit(lab, tmp_path, "--gpus", "1")
    until(lambda: training(lab, job)["epochs_done"] >= 2)
    (before,) = lab.tasks(job)
    lab.ok("cancel", "--checkpoint", job)
    lab.ok("wait", "--timeout", "240s", job, seconds=300.0)
    (after,) = lab.tasks(job)
    assert (after["attempt"], after["node"]) == (2, before["node"])
    assert training(lab, job)["preemptions"] == 1
    assert story(tmp_path) == list(range(12))


def test_a_drained_machine_is_soon_free_and_gives_the_job_back_when_it_is_resumed(
    lab: TemporaryYard, tmp_path: Path
) -> None:
    job = submit(lab, tmp_path, "--gpus", "1..2")
    until(lambda: training(lab, job)["epochs_done"] >= 2)
    node = lab.tasks(job)[0]["node"]
    lab.ok("nodes", "drain", node)
    until(lambda: lab.job(job)["state"] == "PENDING", 240.0)
    assert node in lab.ok("why", job).out
    lab.ok("nodes", "resume", node)
    lab.ok("wait", "--timeout", "240s", job, seconds=300.0)
    assert lab.tasks(job)[0]["node"] == node
    assert story(tmp_path) == list(range(12))


def test_the_ranks_of_a_gang_on_two_machines_find_each_other(lab: TemporaryYard, tmp_path: Path) -> None:
    lab.work = tmp_path
    (tmp_path / "meet.py").write_text(MEET)
    cpus = str(lab.json("nodes")[0]["cpu_millis"] // 1000)  # all of a machine, so that each has one
    job = lab.submit("--on", "lab", "--cpus", cpus, "--workers", "2", "--", "python3", "meet.py")
    lab.ok("wait", "--timeout", "240s", job, seconds=300.0)
    assert len({task["node"] for task in lab.tasks(job)}) == 2
    assert "hello from rank 0" in lab.logs(job)
