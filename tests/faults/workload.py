"""Jobs whose tasks tell what they did: one line in a shared file, and known bytes on stdout and stderr."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.live_yard import LiveYard

from jobyard.model.job import State
from jobyard.wire.views import JobView

RAN = "ran"  # tasks append `<job>/<task> <pid>`; bash opens it with O_APPEND and writes the line at once
LONG_LINES = 300  # of one task in each batch: more than a pipe's or a reader's first piece


@dataclass(frozen=True)
class PlannedTask:
    name: str
    seconds: float
    code: int
    lines: int = 1

    @property
    def out(self) -> bytes:
        return b"".join(f"{self.name} out {number}\n".encode() for number in range(self.lines))

    @property
    def err(self) -> bytes:
        return f"{self.name} err\n".encode()

    def command(self, ran: Path) -> str:
        """One line of bash. The sleep lies between the first and the last byte of output."""
        say = f"for i in {{0..{self.lines - 1}}}; do echo {self.name} out $i; done"
        sleep = f"sleep {self.seconds:.2f}; " if self.seconds else ""
        return f"echo {self.name} $$ >> {ran}; {say}; {sleep}echo {self.name} err >&2; exit {self.code}"


@dataclass
class PlannedJob:
    """One job, how it is asked for, and what became of the asking."""

    name: str
    verb: str  # run or submit
    tasks: list[PlannedTask]
    kill_cli_after: float | None = None  # seconds
    child: subprocess.Popen[bytes] | None = None
    was_killed: bool = False
    problems: list[str] = field(default_factory=list)

    @property
    def is_single(self) -> bool:
        return len(self.tasks) == 1

    @property
    def exit_code(self) -> int:
        if self.verb == "submit":
            return 0
        return self.tasks[0].code if self.is_single else int(any(task.code for task in self.tasks))

    def begin(self, live: LiveYard) -> None:
        ran = live.work / RAN
        flags = ["-n", self.name, "-c", "0.5"] + (["--exit-code"] if self.is_single else [])
        if self.is_single:
            self.child = live.start(self.verb, *flags, "--", "bash", "-c", self.tasks[0].command(ran))
            return
        batch = live.work / f"{self.name}.batch"
        batch.write_text("".join(task.command(ran) + "\n" for task in self.tasks))
        self.child = live.start(self.verb, *flags, str(batch))

    def end_asking(self, live: LiveYard) -> None:
        """Wait for the command, and check what it said."""
        assert self.child is not None
        done = live.ended(self.child)
        if self.was_killed:
            return
        if done.returncode != self.exit_code:
            self._blame(f"yard {self.verb} exited with {done.returncode}, not {self.exit_code}: {done}")
        if self.verb == "run" and self.is_single:
            (task,) = self.tasks
            if done.stdout.encode() != task.out or task.err not in done.stderr.encode():
                self._blame(f"yard run printed {done.stdout[-200:]!r} and {done.stderr[-500:]!r}")

    def check(self, live: LiveYard, found: list[JobView], ran: Counter[str]) -> None:
        """Whether exactly what was acknowledged is there, has run once, and is told as it was."""
        mine = [view for view in found if view.name == self.name]
        if len(mine) != 1:
            if mine or not self.was_killed:
                self._blame(f"{len(mine)} jobs are there")
            for task in self.tasks:
                if ran[task.name] and not mine:
                    self._blame(f"{task.name} ran, and nobody knows of it")
            return
        view = mine[0]
        failed = sum(task.code != 0 for task in self.tasks)
        if view.state is not (State.FAILED if failed else State.SUCCEEDED):
            self._blame(f"is {view.state}: {view.message}")
        counts = view.counts
        if (counts.total, counts.failed, counts.succeeded) != (len(self.tasks), failed, len(self.tasks) - failed):
            self._blame(f"is counted as {counts}")
        told = live.tasks(view.id)
        for number, task in enumerate(self.tasks):
            label = str(number)
            if ran[task.name] != 1:
                self._blame(f"{task.name} ran {ran[task.name]} times")
            seen = told.get(label)
            state = State.FAILED if task.code else State.SUCCEEDED
            if seen is None or (seen.exit_code, seen.state) != (task.code, state):
                self._blame(f"{task.name} is told as {seen}")
            elif live.raw(view.id, label, "out") != task.out or live.raw(view.id, label, "err") != task.err:
                self._blame(f"the output of {task.name} is not complete")

    def _blame(self, what: str) -> None:
        self.problems.append(f"{self.name}: {what}")


def plan_jobs(random_numbers: random.Random) -> list[PlannedJob]:
    """What one round asks for: followed and not, one task and many, and one whose CLI will be killed."""
    return [
        PlannedJob("followed", "run", _tasks("followed", 12, random_numbers)),
        PlannedJob("alone", "run", [PlannedTask("alone.0", 0.3, random_numbers.choice([0, 3, 77]), LONG_LINES)]),
        PlannedJob("handed-in", "submit", _tasks("handed-in", 10, random_numbers)),
        PlannedJob(
            "forsaken", "run", _tasks("forsaken", 8, random_numbers), kill_cli_after=random_numbers.uniform(0.1, 1.5)
        ),
    ]


def _tasks(job: str, count: int, random_numbers: random.Random) -> list[PlannedTask]:
    return [
        PlannedTask(
            f"{job}.{number}",
            seconds=random_numbers.choice([0, 0, 0, random_numbers.uniform(0, 0.3)]),
            code=random_numbers.choice([0, 0, 0, 0, 7, 41]),
            lines=LONG_LINES if number == 0 else 1,
        )
        for number in range(count)
    ]


def what_ran(live: LiveYard) -> Counter[str]:
    path = live.work / RAN
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter(line.split(" ")[0] for line in lines)
