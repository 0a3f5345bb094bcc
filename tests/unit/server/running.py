"""A server's inside without HTTP and without processes: database, loop, fake machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Engine

from jobyard.engine.job_record import JobRecord
from jobyard.executors.fake import FakeExecutor, FakeMachine
from jobyard.model.job import ArrayRange, Command, GroupSpec, JobSpec, State
from jobyard.model.lines import Lines
from jobyard.model.resources import Resources
from jobyard.server.commands import cancel, submit
from jobyard.server.database import open_database
from jobyard.server.environments import Environments
from jobyard.server.history import History
from jobyard.server.journal import Journal
from jobyard.server.lifetime import Lifetime
from jobyard.server.loop import YardLoop
from jobyard.server.output_files import OutputFiles
from jobyard.server.rights import CALLER, Caller
from jobyard.server.snapshots import Snapshots
from jobyard.wire.requests import CancelJob, SubmitJob
from tests.builders import a_job
from tests.waiting import PATIENCE_SECONDS

NODE = "here"


class RunningYard:
    def __init__(self, directory: Path, engine: Engine, machine: FakeMachine) -> None:
        self.directory = directory
        self.engine = engine
        self.machine = machine
        self.journal = Journal(engine)
        self.loop = YardLoop(self.journal, Snapshots(directory / "snapshot", "build", "yard"), History(engine))

    async def submit(self, *lines: str, key: str = "", **spec: Any) -> str:
        return await self.loop.ask(submit(SubmitJob(a_batch(*lines, workdir=str(self.directory), **spec), key=key)))

    async def cancel(self, job: str, **request: Any) -> None:
        await self.loop.ask(cancel(job, CancelJob(**request)))

    def job(self, job: str) -> JobRecord:
        return self.loop.state.jobs[job]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until this holds, looking after every change."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                await self.loop.feed.change()

    async def ended(self, job: str) -> State:
        await self.until(lambda: self.job(job).is_final)
        return self.job(job).state

    async def running(self, job: str) -> None:
        await self.until(lambda: self.job(job).tasks.counts[State.RUNNING] > 0)


def a_batch(*lines: str, cpus: float = 0.1, **spec: Any) -> JobSpec:
    group = GroupSpec(
        Command(lines=Lines.of(list(lines))), completions=len(lines), resources=Resources(int(cpus * 1000))
    )
    return a_job(groups=(group,), **{"name": "batch", "workdir": "/tmp", "user": "ada", **spec})


def an_array(line: str, last: int, **spec: Any) -> JobSpec:
    ids = ArrayRange(((0, last, 1),))
    group = GroupSpec(Command(shell=line), completions=len(ids), array=ids, resources=Resources(100))
    return a_job(groups=(group,), **{"name": "array", "workdir": "/tmp", "user": "ada", **spec})


@asynccontextmanager
async def a_yard(directory: Path, machine: FakeMachine | None = None) -> AsyncIterator[RunningYard]:
    """A running loop on the directory's database. Leaving it is the death of a server: the machine goes on."""
    engine = open_database(f"sqlite:///{directory / 'yard.db'}")
    yard = RunningYard(directory, engine, machine or FakeMachine(directory / "machine"))
    yard.loop.add(FakeExecutor(NODE, yard.machine, yard.loop))
    running = asyncio.create_task(yard.loop.run())
    try:
        assert await yard.loop.has_node(PATIENCE_SECONDS)
        yield yard
    finally:
        yard.machine.drop()
        yard.loop.finish()
        await asyncio.gather(running, return_exceptions=True)
        await yard.loop.close()
        engine.dispose()


def a_request(running: RunningYard, caller: Caller | None = None) -> Any:
    """As much of an HTTP request as a route asks for; without a caller it is the owner's."""
    yard = SimpleNamespace(
        loop=running.loop,
        lifetime=Lifetime(None, lambda: False),
        heartbeat_seconds=15.0,
        directory=str(running.directory),
        environments=Environments(running.directory / "environments", 60.0),
        output_files=OutputFiles(running.loop, running.directory),
    )
    state = SimpleNamespace(**{CALLER: caller} if caller else {})
    return SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(yard=yard)), state=state)
