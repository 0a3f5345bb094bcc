"""Who runs a file of shell lines? Each contestant runs all of them, output captured, and says how long it took."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from hyperqueue_python import python_with_hyperqueue
from record import REPOSITORY
from temporary_yard import check, temporary_yard


class Contestant(Protocol):
    name: str

    def seconds(self, batch: Path) -> float:
        """Run the lines of `batch` once, with the wall time seen by the one who waits for it."""


class Xargs:
    """The least that can be done: all output goes to one file, and statuses are forgotten."""

    name = "xargs"

    def __init__(self, parallel: int, scratch: Path) -> None:
        self.command = ["xargs", "-P", str(parallel), "-I{}", "bash", "-c", "{}"]
        self.output = scratch / "xargs.out"

    def seconds(self, batch: Path) -> float:
        return timed(lambda: check(self.command, stdin=batch, stdout=self.output))


class Parallel:
    """Each task's output is captured apart, then joined into one file (`--results` is slower)."""

    name = "parallel"

    def __init__(self, parallel: int, scratch: Path) -> None:
        subprocess.run([REPOSITORY / "tools/need", "parallel", "parallel"], check=True)
        self.command = ["parallel", "--will-cite", "-j", str(parallel)]
        self.env = {**os.environ, "SHELL": shutil.which("bash") or "/bin/bash"}
        self.output = scratch / "parallel.out"

    def seconds(self, batch: Path) -> float:
        return timed(lambda: check(self.command, env=self.env, stdin=batch, stdout=self.output))


class HyperQueue:
    """A LocalCluster that stays up between rounds; two files per task."""

    name = "hyperqueue"

    def __init__(self, parallel: int, scratch: Path, stack: ExitStack) -> None:
        program = Path(__file__).with_name("hyperqueue_rounds.py")
        self.cluster = stack.enter_context(
            subprocess.Popen(
                [python_with_hyperqueue(), program, str(parallel), str(scratch)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )

    def seconds(self, batch: Path) -> float:
        """As the cluster's own process measured it, see there."""
        assert self.cluster.stdin
        assert self.cluster.stdout
        print(batch, file=self.cluster.stdin, flush=True)
        answer = self.cluster.stdout.readline()
        if not answer:
            sys.exit("HyperQueue ended before its tasks did.")
        return float(answer)


class YardRun:
    """A server that is up, as on any but the first call; the whole of `yard run`, from its start to its exit."""

    name = "yard"

    def __init__(self, parallel: int, stack: ExitStack) -> None:
        self.cpus = f"{len(os.sched_getaffinity(0)) / parallel:.3f}"  # of each task, so that `parallel` fit at once
        self.yard = stack.enter_context(temporary_yard())
        self.yard.run("run", "--", "true")

    def seconds(self, batch: Path) -> float:
        return timed(self.yard.run, "run", "--cpus", self.cpus, str(batch))


def all_contestants(parallel: int, stack: ExitStack) -> list[Contestant]:
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jobyard-bench.")))
    return [
        Xargs(parallel, scratch),
        Parallel(parallel, scratch),
        HyperQueue(parallel, scratch, stack),
        YardRun(parallel, stack),
    ]


def timed(action: Callable[..., None], *arguments: str) -> float:
    """Seconds, to the tenth of a millisecond."""
    start = time.perf_counter()
    action(*arguments)
    return round(time.perf_counter() - start, 4)
