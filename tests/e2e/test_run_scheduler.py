"""KubeProfiler's commands on fake GPUs: submit, preempt, resume, resize, and bad input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.waiting import until
from tests.yards import Done, TemporaryYard

# As the seed's guide has it: the loop begins where the last attempt ended, and saves after end_epoch().
# An epoch ends when the file `gate` has at least its number in it: the test says how far the training gets.
SCRIPT = """
import os, sys, time
from kubernetesdlprofile import kubeprofiler

prof = kubeprofiler.KubeProfiler()
custom = os.environ["YARD_CUSTOM_DIR"]
told = [os.environ[name] for name in ("JOB_RESTARTED", "EPOCHS_DONE", "NUM_GPUS")]
print("begin", *told, prof.RESTARTED, flush=True)

def may_end(epoch):
    with open(os.path.join(custom, "gate")) as gate:
        return int(gate.read() or 0) >= epoch

for epoch in range(prof.EPOCHS_DONE + 1, prof.EPOCHS + 1):
    prof.start_epoch()
    while True:
        time.sleep(0.02)
        prof.measure()
        if may_end(epoch):
            break
    prof.end_epoch()
    with open(os.path.join(prof.root_dir, "model"), "w") as model:
        model.write(str(epoch))
    print("epoch", epoch, flush=True)
print("done", open(os.path.join(prof.root_dir, "model")).read(), flush=True)
"""
ALONE = ("--disable_gpu_sharing", "true")


class Lab:
    """A yard with fake GPUs, and the directories of a user of KubeProfiler's scheduler."""

    def __init__(self, yard: TemporaryYard) -> None:
        self.yard = yard
        yard.write("custom/train.py", SCRIPT)
        yard.write("custom/quick.py", "import os\nprint('quick', os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\n")
        (yard.work / "snapshots").mkdir(exist_ok=True)
        self.open_gate(0)

    def open_gate(self, epoch: int) -> None:
        path = self.yard.work / "custom" / "gate"
        path.with_suffix(".new").write_text(str(epoch))
        path.with_suffix(".new").replace(path)

    def call(self, program: str, *words: str) -> Done:
        command = [sys.executable, "-P", "-m", f"jobyard.compat.kubeprofiler.{program}", *words]
        done = subprocess.run(command, cwd=self.yard.work, env=self.yard.env, capture_output=True, timeout=120)
        return Done(done.returncode, done.stdout, done.stderr, 0.0)

    def submit(self, name: str, *words: str, script: str = "train.py", epochs: int = 6) -> str:
        done = self.call(
            "run_scheduler",
            *("--script_path", f"/custom/{script}", "--custom_dir", "custom", "--snapshots_dir", "snapshots"),
            *("--max_epochs", str(epochs), "--batch_size", "8", "--training_set_size", "64", *words, name),
        )
        assert done.code == 0, f"{done.err}\n{self.yard.server_log()}"
        return done.out.strip()

    def training(self, job: str) -> dict[str, Any]:
        training: dict[str, Any] = self.yard.job(job)["training"]
        return training

    def until_done(self, job: str, epochs: int) -> dict[str, Any]:
        """Its training, once so many epochs are done and it has said that it stops when asked."""

        def look() -> dict[str, Any] | None:
            found = self.training(job)
            return found if found["epochs_done"] >= epochs and found["can_yield"] else None

        return until(look)

    def begins(self, job: str, attempt: int) -> list[str]:
        """The words of an attempt's first line, once it is there."""

        def look() -> list[str] | None:
            lines = self.yard.run("logs", job, "--attempt", str(attempt)).out.splitlines()
            return lines[0].split() if lines else None

        return until(look)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with TemporaryYard(JOBYARD_FAKE_GPUS="1x16GiB") as yard:
        yield Lab(yard)


@pytest.fixture
def wide_lab() -> Iterator[Lab]:
    with TemporaryYard(JOBYARD_FAKE_GPUS="2x16GiB") as yard:
        yield Lab(yard)


def test_a_high_priority_job_preempts_and_the_victim_resumes_where_it_was(lab: Lab) -> None:
    victim = lab.submit("victim", *ALONE)
    assert lab.begins(victim, 1) == ["begin", "FALSE", "0", "1", "False"]
    lab.open_gate(2)
    lab.until_done(victim, 2)
    urgent = lab.submit("urgent", *ALONE, "--priority", "10", script="quick.py")
    # It is asked to stop, and goes on to the end of its epoch.
    lab.yard.wait_state(victim, "STOPPING")
    assert lab.yard.job(urgent)["state"] == "PENDING"
    lab.open_gate(3)
    assert lab.yard.run("wait", urgent).code == 0
    assert lab.yard.logs(urgent).split()[0] == "quick"
    # It resumes after the epoch that it had saved, and ends well.
    assert lab.begins(victim, 2) == ["begin", "TRUE", "3", "1", "True"]
    lab.open_gate(99)
    assert lab.yard.run("wait", victim).code == 0
    assert lab.yard.logs(victim).splitlines()[1:] == ["epoch 4", "epoch 5", "epoch 6", "done 6"]
    told = lab.yard.job(victim)
    assert (told["training"]["preemptions"], told["training"]["epochs_done"], told["counts"]["failed"]) == (1, 6, 0)
    assert "1 preemption" in lab.yard.ok("show", victim).out


def test_a_user_stops_a_job_at_a_checkpoint(lab: Lab) -> None:
    job = lab.submit("train", *ALONE)
    lab.open_gate(1)
    lab.until_done(job, 1)
    assert "stops at its next checkpoint" in lab.yard.ok("cancel", "--checkpoint", job).out
    lab.open_gate(2)
    assert lab.begins(job, 2) == ["begin", "TRUE", "2", "1", "True"]
    lab.open_gate(99)
    assert lab.yard.run("wait", job).code == 0


def test_a_job_that_does_not_report_cannot_be_stopped_at_a_checkpoint(lab: Lab) -> None:
    job = lab.yard.submit("--", "sleep", "60")
    lab.yard.wait_state(job, "RUNNING")
    refused = lab.yard.run("cancel", "--checkpoint", job)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "has not said that it stops at a checkpoint" in refused.err
    lab.yard.ok("cancel", "--force", job)


def test_not_single_means_all_gpus_there_are_and_scale_changes_that(wide_lab: Lab) -> None:
    job = wide_lab.submit("wide", *ALONE, "--is_single_gpu", "false")
    assert wide_lab.begins(job, 1) == ["begin", "FALSE", "0", "2", "False"]
    wide_lab.open_gate(1)
    wide_lab.until_done(job, 1)
    refused = wide_lab.yard.run("scale", job, "0")
    assert refused.code == 2
    wide_lab.yard.ok("scale", job, "1")
    wide_lab.open_gate(2)
    assert wide_lab.begins(job, 2) == ["begin", "TRUE", "2", "1", "True"]
    assert wide_lab.training(job)["size"] == "1 GPU"
    wide_lab.open_gate(99)
    assert wide_lab.yard.run("wait", job).code == 0


def test_two_jobs_share_a_gpu_by_their_estimates(lab: Lab) -> None:
    jobs = [lab.submit(f"half-{n}", "--estimated_memory", "8000") for n in range(2)]
    for job in jobs:
        lab.begins(job, 1)
    assert {task["devices"][0] for job in jobs for task in lab.yard.tasks(job)} == {0}
    lab.open_gate(99)
    assert lab.yard.run("wait", *jobs).code == 0


def test_the_other_commands_look_and_cancel(lab: Lab) -> None:
    job = lab.submit("watched", *ALONE)
    lab.open_gate(1)
    lab.until_done(job, 1)
    shown = lab.call("state", "--extended").out
    assert job in shown
    assert "1/6" in shown
    assert lab.call("get_logs", job).out.splitlines()[-1] == "epoch 1"
    assert lab.call("cancel_job", job).code == 0
    lab.open_gate(2)  # SIGTERM means "at the next checkpoint" to it, and it gets there within its grace
    lab.yard.run("wait", job)
    assert lab.yard.job(job)["state"] == "CANCELLED"
    assert job in lab.call("state", "--nlast", "5").out


def test_tensorboard_shows_the_logs_of_the_job_until_ctrl_c(lab: Lab) -> None:
    lab.yard.write("custom/quick.py", "import os\nos.makedirs(os.environ['YARD_CHECKPOINT_DIR'] + '/lightning_logs')\n")
    job = lab.submit("logs", *ALONE, script="quick.py")
    assert lab.yard.run("wait", job).code == 0
    lab.yard.write("bin/tensorboard", '#!/bin/sh\necho "$1" >shown\nexec sleep 60\n')
    (lab.yard.work / "bin" / "tensorboard").chmod(0o755)
    env = {"PATH": f"{lab.yard.work}/bin:{lab.yard.env['PATH']}"}
    words = lab.yard.command("tensorboard", job)
    with subprocess.Popen(
        words, cwd=lab.yard.work, env={**lab.yard.env, **env}, stdout=subprocess.PIPE, start_new_session=True
    ) as shown:
        try:
            until(lambda: (lab.yard.work / "shown").exists())
            os.killpg(shown.pid, signal.SIGINT)
            out, _ = shown.communicate(timeout=60)
        finally:
            shown.kill()
    assert shown.returncode == 0
    assert out.decode().startswith("http://127.0.0.1:")
    assert (lab.yard.work / "shown").read_text().strip().endswith("checkpoint/0/lightning_logs")


def test_bad_input_is_one_sentence(lab: Lab) -> None:
    refused = lab.call("run_scheduler", "--script_path", "/custom/train.py", "--custom_dir", "nowhere", "x")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert refused.err.startswith("run-scheduler: --custom_dir: 'nowhere'")
    missing = lab.call("get_logs", "no-such-job")
    assert (missing.code, missing.err.count("\n")) == (2, 1)
    assert missing.err.startswith("scheduler-get-logs: ")
