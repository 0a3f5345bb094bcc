"""Where the promises are asked for: each place knows how to be reached, cut off and cleared away.

A new executor adds a Place and its name to PLACES; the tests do not change. Commands in the tests are words that both
bash and the fake machine understand.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from jobyard.agent.system import processes
from jobyard.executors.agent_process import LocalAgent
from jobyard.executors.fake import FakeMachine
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import Executor, LiveAttempt, SubmittedJob
from jobyard.executors.registry import executor_class
from jobyard.executors.result_collector import RemoteFiles
from jobyard.executors.ssh import SshAgent
from jobyard.model.effects import CloseSlot, Effect, Launch, Stop, Withdraw, Yield
from jobyard.model.events import AttemptsFinished, AttemptsStarted, AttemptsWithdrawn, Event, NodeJoined
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.lines import Lines
from jobyard.model.policy import RunPolicy
from jobyard.model.resources import Placement, Resources
from jobyard.model.ssh_target import SshTarget
from jobyard.model.submitter import Submitter
from jobyard.model.task import AttemptId, Outcome, Slot
from tests.hosts import Host, Hosts
from tests.played_yard import PlayedYard
from tests.waiting import PATIENCE_SECONDS
from tests.yards import shared_cache

NODE = "here"
T = TypeVar("T")


class Place(Protocol):
    """A kind of executor, made ready for one test."""

    shared: Path  # a directory that the test and its tasks see under the same name

    def executor(self, yard: ConformanceYard) -> Executor:
        """A new one on the same machine, as after a restart of the server."""
        ...

    def clear(self) -> None:
        """Nothing of it is left."""
        ...


class FakePlace:
    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shared = directory.parent
        self._directory = directory
        self._machine: FakeMachine | None = None

    def executor(self, yard: ConformanceYard) -> Executor:
        self._machine = self._machine or FakeMachine(self._directory)
        made: Executor = executor_class("fake")(NODE, self._machine, yard)
        return made

    def clear(self) -> None:
        pass  # it lives in the test's event loop, and ends with it


class LocalPlace:
    """A real agent and real processes."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JOBYARD_RESERVATIONS_DIR", str(directory / "reservations"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache()))
        self.shared = directory.parent
        self._state = directory / "agent"
        self._run = Path(tempfile.mkdtemp(prefix="yc-", dir="/tmp"))

    def executor(self, yard: ConformanceYard) -> Executor:
        agent = LocalAgent(self._state, self._run / "agent.sock")
        made: Executor = executor_class("local")(
            "local", NODE, agent, yard, {"yard": "a-yard", "respawn": []}, self._state
        )
        return made

    def clear(self) -> None:
        # Lanes have their agent's command line, tasks the state directory in their environment.
        marks = (str(self._state).encode() + b"\0", str(self._state).encode() + b"/")
        for process in processes.scan():
            if process.pid != os.getpid() and any(mark in _words_of(process.pid) for mark in marks):
                processes.send(process.pid, signal.SIGKILL)
        for path in self._run.iterdir():
            path.unlink()
        self._run.rmdir()


class SshPlace:
    """A machine with a disk of its own behind a real sshd. Skips, with the reason, where none can be made."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._host = _a_host()
        monkeypatch.setenv("YARD_SSH_CONFIG", str(self._host.config_file))
        monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache()))
        # A host made of namespaces has another /tmp and another home; the rest of the disk it sees as we do.
        self.shared = Path(tempfile.mkdtemp(prefix="yc-", dir="/var/lib" if self._host.can_cut else "/tmp"))
        self._run = Path(tempfile.mkdtemp(prefix="yc-", dir="/tmp"))
        self._mirror = Mirror(directory / "mirror")
        self._snapshots = directory / "snapshots"

    def executor(self, yard: ConformanceYard) -> Executor:
        agent = SshAgent(NODE, SshTarget(self._host.name), "a-yard", self._run, alive_seconds=1)
        remote = RemoteFiles(self._mirror, self._snapshots, lambda attempt: None, lease_seconds=60)
        made: Executor = executor_class("ssh")(
            "ssh", NODE, agent, yard, {"yard": "a-yard"}, self._mirror.directory, remote
        )
        return made

    def clear(self) -> None:
        self._host.renew()
        for directory in (self.shared, self._run):
            shutil.rmtree(directory)


@cache
def _a_host() -> Host:
    """One for all tests; it goes at exit."""
    return Hosts(1)[0]


PLACES: dict[str, Callable[[Path, pytest.MonkeyPatch], Place]] = {
    "fake": FakePlace,
    "local": LocalPlace,
    "ssh": SshPlace,
}


def _words_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


class ConformanceYard(PlayedYard):
    """Jobs of lines, submitted from a shell. An executor makes no error with them."""

    def __init__(self, workdir: Path) -> None:
        super().__init__(NODE)
        self._workdir = workdir

    def submit(self, job_id: str, *lines: str, grace: float = 10.0, timeout: float | None = None) -> SubmittedJob:
        group = GroupSpec(Command(lines=Lines.of(list(lines))), completions=len(lines))
        shell = {"PATH": os.environ["PATH"], "HOME": str(self._workdir), "SHELL_SECRET": "of-the-shell"}
        spec = JobSpec(
            "test",
            (group,),
            workdir=str(self._workdir),
            policy=RunPolicy(grace_seconds=grace, timeout_seconds=timeout),
            submitter=Submitter(inherited_env=shell),
        )
        self.jobs[job_id] = SubmittedJob(job_id, len(self.jobs) + 1, spec)
        return self.jobs[job_id]

    def count_error(self, what: str, sentence: str, error: Exception | None = None) -> None:
        raise AssertionError(f"{what}: {sentence}") from error


class Link:
    """One executor at work, and everything that it has seen."""

    def __init__(self, executor: Executor, yard: ConformanceYard) -> None:
        self.executor = executor
        self.yard = yard
        self.events: list[Event] = []
        self._news = asyncio.Condition()

    # -- doing

    def launch(self, job: SubmittedJob, *tasks: int, slot: str = "1", attempt: int = 1) -> list[AttemptId]:
        """Hand tasks of a job to a slot, as the server does: believed to be there first, then sent."""
        effect = a_launch(job, tasks, slot, attempt)
        for name in effect.attempts:
            self.yard.live[name] = LiveAttempt(name, effect.slot, is_stopping=False)
        self.perform(effect)
        return list(effect.attempts)

    def perform(self, *effects: Effect) -> None:
        self.executor.perform(effects)

    def stop(self, *attempts: AttemptId, grace: float = 10.0) -> None:
        self.perform(Stop(NODE, attempts, grace))

    def ask_to_yield(self, *attempts: AttemptId, deadline: float = 600.0, at_once: bool = False) -> None:
        self.perform(Yield(NODE, attempts, deadline, 10.0, at_once))

    def withdraw(self, *attempts: AttemptId) -> None:
        self.perform(Withdraw(NODE, attempts))

    def close_slot(self, slot: str) -> None:
        self.perform(CloseSlot(NODE, slot))

    # -- looking

    async def started(self, attempt: AttemptId) -> float:
        return await self._first(lambda: (at for name, at in self.all_started() if name == attempt))

    async def finished(self, attempt: AttemptId) -> Outcome:
        return await self._first(lambda: (outcome for name, outcome in self.all_finished() if name == attempt))

    async def withdrawn(self, attempt: AttemptId) -> None:
        await self._first(lambda: (name for name in self.all_withdrawn() if name == attempt))

    async def joined(self, times: int = 1) -> None:
        await self._first(lambda: (True for _ in [0] if sum(isinstance(e, NodeJoined) for e in self.events) >= times))

    def all_started(self) -> Iterable[tuple[AttemptId, float]]:
        started = (event for event in self.events if isinstance(event, AttemptsStarted))
        return [(item.attempt, item.at) for event in started for item in event.items]

    def all_finished(self) -> Iterable[tuple[AttemptId, Outcome]]:
        return [item for event in self.events if isinstance(event, AttemptsFinished) for item in event.items]

    def all_withdrawn(self) -> Iterable[AttemptId]:
        return [name for event in self.events if isinstance(event, AttemptsWithdrawn) for name in event.attempts]

    def finished_times(self, attempt: AttemptId) -> int:
        return [name for name, _ in self.all_finished()].count(attempt)

    def output(self, attempt: AttemptId, stream: str = "out") -> str:
        return Path(self.executor.log_path(attempt, stream)).read_text()

    async def _first(self, found: Callable[[], Iterable[T]]) -> T:
        """The first that was found, as soon as there is one."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._news:
            while True:
                for item in found():
                    return item
                await self._news.wait()

    async def listen(self) -> None:
        async for events in self.executor.observations():
            async with self._news:
                self.events += events
                for name in (*(name for name, _ in self.all_finished()), *self.all_withdrawn()):
                    self.yard.live.pop(name, None)
                self._news.notify_all()


def a_launch(job: SubmittedJob, tasks: Sequence[int], slot: str = "1", attempt: int = 1) -> Launch:
    held = Slot(slot, job.id, 0, Placement(NODE, Resources(cpu_millis=100)))
    return Launch(NODE, held, tuple(AttemptId(job.id, task, attempt) for task in tasks))


@asynccontextmanager
async def linked(place: Place, yard: ConformanceYard) -> AsyncIterator[Link]:
    """An executor that has met its machine. Leaving cuts it off, as the death of a server does."""
    link = Link(place.executor(yard), yard)
    tasks = [asyncio.create_task(link.executor.run()), asyncio.create_task(link.listen())]
    try:
        await link.joined()
        yield link
    finally:
        link.executor.reconnect()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
