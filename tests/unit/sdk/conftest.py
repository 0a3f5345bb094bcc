"""What the tests of the SDK share: a yard that is only an environment and two files."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import jobyard.sdk
from jobyard.sdk import PREEMPTED_EXIT_CODE, YardJob, environment, stopping

SET_BY_A_YARD = (
    *("YARD_EPOCHS", "YARD_EPOCHS_DONE", "YARD_RESUMED", "YARD_HEARTBEAT", "YARD_SPOOL", "YARD_STOP_FILE"),
    *("YARD_CHECKPOINT_DIR", "YARD_SNAPSHOTS_DIR", "YARD_JOB_ID", "YARD_NODE", "RANK", "LOCAL_RANK", "NODE_RANK"),
    *("WORLD_SIZE", "JOB_UUID", "HEARTBEAT_FREQ", "NODELIST", "NUM_GPUS", "NUM_NODES", "JOB_RESTARTED", "BATCH_SIZE"),
    *("EPOCHS_TO_BE_DONE", "EPOCHS_DONE", "TRAINING_SET_SIZE"),
)


@dataclass
class Yard:
    """The agent's side of one attempt."""

    spool: Path
    stop_file: Path
    monkeypatch: pytest.MonkeyPatch

    def set(self, **variables: object) -> None:
        for name, value in variables.items():
            self.monkeypatch.setenv(name, str(value))

    def ask_to_stop(self) -> None:
        self.stop_file.touch()

    def records(self, kind: str = "") -> list[dict[str, Any]]:
        lines = self.spool.read_text().splitlines() if self.spool.exists() else []
        records: list[dict[str, Any]] = [json.loads(line) for line in lines]
        return [record for record in records if not kind or record["t"] == kind]

    def kinds(self) -> list[str]:
        """What was said, but for steps, which come when it is time."""
        return [record["t"] for record in self.records() if record["t"] != "steps"]

    def done(self, kind: str) -> list[int]:
        return [record["done"] for record in self.records(kind)]


@pytest.fixture(autouse=True)
def _no_yard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Every test starts in a process that has no job yet and no yard around it."""
    for name in SET_BY_A_YARD:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobyard.sdk, "_job", None)
    monkeypatch.setattr(environment, "_warned", set())
    monkeypatch.setattr(stopping, "_is_terminated", False)
    monkeypatch.setattr(stopping, "_listener", 0)
    monkeypatch.setattr("atexit.register", lambda function: None)
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def yard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Yard:
    there = Yard(tmp_path / "0.1.spool", tmp_path / "0.1.stop", monkeypatch)
    there.set(YARD_SPOOL=there.spool, YARD_STOP_FILE=there.stop_file)
    return there


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time goes on when the test says so."""
    there = Clock()
    monkeypatch.setattr("jobyard.sdk.job.perf_counter", there)
    return there


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def one_epoch(job: YardJob, steps: int = 2) -> None:
    """start_epoch(), some steps, end_epoch()."""
    job.start_epoch()
    for _ in range(steps):
        job.measure()
    job.end_epoch()


def in_a_fork(action: Any) -> int:
    """The exit status of a forked process that did it; it must not become a second pytest."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def leaves(action: Any) -> bool:
    """Whether it ends the process, as a yield does."""
    try:
        action()
    except SystemExit as leaving:
        return leaving.code == PREEMPTED_EXIT_CODE == 85
    return False
