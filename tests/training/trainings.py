"""A yard that trains: the examples as jobs, and what they report."""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.waiting import until
from tests.yards import ROOT, TemporaryYard

EXAMPLES = ROOT / "examples/training"
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")
EPOCH_SECONDS = 240.0  # to wait for the first epoch: two small cores import a framework, with others beside them


class TrainingYard(TemporaryYard):
    """Jobs are started with the frameworks' Python."""

    def __init__(self, python: str, **env: str) -> None:
        super().__init__(**env)
        self.python = python

    def __enter__(self) -> TrainingYard:
        return self

    def train(self, script: str | Path, *flags: str, arguments: tuple[str, ...] = ()) -> str:
        """The id of a new job that runs an example. It asks for no cores: which there are is not the matter here."""
        quiet = ("-e", "TF_CPP_MIN_LOG_LEVEL=3", "-e", "OMP_NUM_THREADS=1")
        return self.submit("--cpus", "0", *quiet, *flags, "--", self.python, str(EXAMPLES / script), *arguments)

    def training(self, job: str) -> dict[str, Any]:
        """What the yard knows of a job's training; empty while it knows nothing."""
        view: dict[str, Any] = self.job(job)["training"] or {}
        return view

    def epochs_done(self, job: str) -> int:
        return int(self.training(job).get("epochs_done") or 0)

    def wait_epochs(self, job: str, least: int) -> int:
        """How many epochs are done and saved, once they are at least so many."""

        def look() -> int | None:
            found = self.job(job)
            assert found["state"] not in FINAL or self.epochs_done(job) >= least, self.story(job)
            done = self.epochs_done(job)
            return done if done >= least else None

        return until(look, EPOCH_SECONDS)

    def preempt(self, job: str) -> int:
        """Stop it at its next checkpoint, and wait for it to be started again; the number of the new attempt."""
        attempt = self.attempt(job)
        self.client.yield_job(job)  # a process of its own might be too late
        until(lambda: self.attempt(job) > attempt or self.job(job)["state"] in FINAL, EPOCH_SECONDS)
        assert self.attempt(job) > attempt, self.story(job)
        return attempt + 1

    def attempt(self, job: str) -> int:
        return max(int(task["attempt"]) for task in self.tasks(job))

    def finish(self, job: str) -> None:
        """Wait for its end, which must be a success."""
        until(lambda: self.job(job)["state"] in FINAL, EPOCH_SECONDS)
        assert self.job(job)["state"] == "SUCCEEDED", self.story(job)

    def files(self, pattern: str) -> list[Path]:
        """Those of this name that are anywhere in the yard. Directories may come and go meanwhile: rglob minds that."""
        found = ((Path(at), name) for at, _, names in os.walk(self.directory) for name in names)
        return [at / name for at, name in found if fnmatch(name, pattern)]

    def story(self, job: str) -> str:
        """For a failed assertion: all there is to know."""
        shown = self.run("show", job, "--tasks")
        logs = self.run("logs", job, "--tail", "40")
        return f"{shown.out}{shown.err}\n{logs.out}\n{logs.err}\n{self.server_log()}"
