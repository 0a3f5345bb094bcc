"""The original KubeProfiler library, which posts to hosts that it knows and leaves with 0 when it is told to stop."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines import Engine, engine  # noqa: F401 - a fixture
from tests.marks import long
from tests.training.trainings import FINAL, TrainingYard
from tests.waiting import until

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("kubeprofiler_script.py")
# By default the slow one: it answers when the next epoch has asked, or nothing more will. So every profile comes late.
NVIDIA_SMI = """#!/bin/sh
marks=$(dirname "$0")/../$JOB_NAME/attempt-$YARD_ATTEMPT
answers() { ls "$marks" | grep -c answered; }
before=$(answers)
until [ "$(answers)" -gt "$before" ] || [ -e "$marks/over" ]; do sleep 0.02; done
echo '<nvidia_smi_log><gpu><processes/></gpu></nvidia_smi_log>'
"""
IN_A_CONTAINER = """
import os, runpy, sys
sys.argv[1:] = ["seed", "/custom", os.environ["YARD_REPORT_ADDRESS"]]
runpy.run_path("/custom/kubeprofiler_script.py")
"""
EPOCHS = 6
SIZES = ("--epochs", str(EPOCHS), "--batch-size", "8", "--training-set-size", "64")
BY_ARGUMENT, BY_PROXY = ("", " $YARD_REPORT_ADDRESS"), ("http_proxy=http://$YARD_REPORT_ADDRESS ", "")


class Original:
    """One job with the original library, as far as the test lets it go."""

    def __init__(self, yard: TrainingYard, name: str) -> None:
        self.yard = yard
        self.name = name
        self.directory = yard.work / name
        self.directory.mkdir()
        self.id = ""

    def submit(self, version: str = "seed", way: tuple[str, str] = BY_ARGUMENT) -> Original:
        before, after = way
        command = f"{before}{sys.executable} {SCRIPT} {version} {self.directory}{after}"
        snapshots, path = f"ORIGINAL_SNAPSHOTS={self.yard.work}", f"PATH={self.yard.env['PATH']}"
        env = ("-e", f"JOB_NAME={self.name}", "-e", snapshots, "-e", path)
        self.id = self.yard.submit("--cpus", "0", *env, *SIZES, "--", command)
        return self

    def submit_in(self, image: str) -> Original:
        """With run-scheduler, as the guide has it: the library and the script are in /custom."""
        for each in (SCRIPT, SCRIPT.with_name("kubeprofiler_client.py")):
            shutil.copy(each, self.directory)
        (self.directory / "train.py").write_text(IN_A_CONTAINER)
        (self.yard.work / "snapshots").mkdir()
        directories = ["--custom_dir", self.name, "--snapshots_dir", "snapshots"]
        sizes = ["--max_epochs", str(EPOCHS), "--batch_size", "8", "--training_set_size", "64"]
        words = ["--script_path", "/custom/train.py", *directories, *sizes, "--container", "--image_name", image]
        command = [sys.executable, "-P", "-m", "jobyard.compat.kubeprofiler.run_scheduler", *words, self.name]
        done = subprocess.run(command, cwd=self.yard.work, env=self.yard.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        self.id = done.stdout.strip()
        return self

    def go(self, *epochs: int) -> None:
        for epoch in epochs:
            (self.directory / f"go-{epoch}").touch()

    def begins(self, epoch: int) -> None:
        """Wait until it would begin this epoch."""
        until(lambda: (self.directory / f"begins-{epoch}").exists() or self.is_final)
        assert not self.is_final, self.yard.story(self.id)

    @property
    def is_final(self) -> bool:
        return self.yard.job(self.id)["state"] in FINAL

    def stop(self) -> None:
        """Ask it to stop, and wait until its machine knows."""
        until(lambda: self.yard.training(self.id).get("can_yield"))
        self.yard.client.yield_job(self.id)  # a process of its own might be too late
        until(lambda: [path for path in self.yard.files("*.stop") if self.id in str(path)])

    def begin_lines(self) -> list[str]:
        attempts = range(1, self.yard.attempt(self.id) + 1)
        logs = [self.yard.logs(self.id, "--attempt", str(number)) for number in attempts]
        return [line for log in logs for line in log.splitlines() if line.startswith("begins")]

    @property
    def trained(self) -> list[int]:
        return [int(line) for line in (self.directory / "trained").read_text().split()]


def begins(*epochs: int) -> list[str]:
    return [f"begins with {done} epochs saved, told {done}" for done in epochs]


@pytest.fixture
def yard() -> Iterator[TrainingYard]:
    with TrainingYard(sys.executable) as yard:
        programs = yard.work / "bin"
        programs.mkdir()
        (programs / "nvidia-smi").write_text(NVIDIA_SMI)
        (programs / "nvidia-smi").chmod(0o755)
        yard.env["PATH"] = f"{programs}:{yard.env['PATH']}"
        yield yard


def test_stopped_in_each_of_its_epochs_it_is_told_what_it_has_saved_and_trains_each_epoch_once(
    yard: TrainingYard,
) -> None:
    jobs = {epoch: Original(yard, f"stopped-{epoch}").submit() for epoch in range(2, EPOCHS + 1)}
    for epoch, job in jobs.items():
        job.go(*range(1, epoch))
    for epoch, job in jobs.items():
        job.begins(epoch)
        job.stop()
        job.go(*range(epoch, EPOCHS + 1))
    for epoch, job in jobs.items():
        yard.finish(job.id)
        is_last = epoch == EPOCHS  # in which nothing is stopped
        assert job.begin_lines() == (begins(0) if is_last else begins(0, epoch - 1))
        assert job.trained == list(range(1, EPOCHS + 1))
        assert yard.epochs_done(job.id) == EPOCHS


def test_stopped_again_and_again_it_goes_on_where_it_was(yard: TrainingYard) -> None:
    job = Original(yard, "often").submit()
    job.go(1)
    for epoch in range(2, EPOCHS):
        job.begins(epoch)
        job.stop()
        job.go(epoch)
        until(lambda number=epoch: yard.attempt(job.id) == number)  # type: ignore[misc]
    job.go(EPOCHS)
    yard.finish(job.id)
    assert job.begin_lines() == begins(*range(EPOCHS - 1))
    assert job.trained == list(range(1, EPOCHS + 1))
    assert yard.epochs_done(job.id) == EPOCHS


def test_without_nvidia_smi_it_tells_of_no_epoch_and_its_asks_are_enough(yard: TrainingYard) -> None:
    (yard.work / "bin/nvidia-smi").write_text("#!/bin/sh\nexit 127\n")
    job = Original(yard, "blind").submit()
    job.go(1, 2)
    job.begins(3)
    job.stop()
    job.go(*range(3, EPOCHS + 1))
    yard.finish(job.id)
    assert job.begin_lines() == begins(0, 2)
    assert job.trained == list(range(1, EPOCHS + 1))
    assert yard.epochs_done(job.id) == EPOCHS
    assert "ParseError" in yard.ok("logs", job.id).err


def test_without_its_directory_for_snapshots_it_does_not_begin(yard: TrainingYard) -> None:
    job = yard.submit("--cpus", "0", *SIZES, "--", f"{sys.executable} {SCRIPT} seed {yard.work} $YARD_REPORT_ADDRESS")
    yard.wait_state(job, "FAILED")
    assert "FileNotFoundError" in yard.ok("logs", job).err


@pytest.mark.parametrize("way", [BY_ARGUMENT, *long((BY_PROXY,))], ids=["by its constructor's hosts", "by http_proxy"])
def test_the_later_version_stops_with_exit_0_and_resumes_to_its_end(yard: TrainingYard, way: tuple[str, str]) -> None:
    (yard.work / "bin/nvidia-smi").write_text("#!/bin/sh\necho '<nvidia_smi_log/>'\n")
    job = Original(yard, "later").submit("later", way)
    job.go(1, 2)
    job.begins(3)
    yard.wait_epochs(job.id, 1)
    job.stop()
    job.go(*range(3, EPOCHS + 1))
    yard.finish(job.id)
    assert job.begin_lines() == begins(0, 2)
    assert job.trained == list(range(1, EPOCHS + 1))
    assert yard.epochs_done(job.id) == EPOCHS


@pytest.mark.long
def test_in_a_container_it_finds_its_snapshots_and_is_counted_too(engine: Engine) -> None:  # noqa: F811
    env = {"JOBYARD_CONTAINER_RUNTIME": engine.command, "JOBYARD_FAKE_GPUS": "1x16GiB"}
    with TrainingYard(sys.executable, **env) as yard:
        job = Original(yard, "contained").submit_in(engine.load_python())
        job.go(1, 2)
        job.begins(3)
        job.stop()
        job.go(*range(3, EPOCHS + 1))
        yard.finish(job.id)
        assert job.begin_lines() == begins(0, 2)
        assert job.trained == list(range(1, EPOCHS + 1))
        assert yard.epochs_done(job.id) == EPOCHS
        assert (yard.work / "snapshots" / job.id / "saved").read_text() == str(EPOCHS)
