"""What is true while a commit is under way? Memory is ahead of the disk then, and nobody may act on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

from tests.builders import a_job, submitted
from tests.played_agent import PlayedAgent
from tests.played_yard import PlayedYard
from tests.waiting import PATIENCE_SECONDS

from jobyard.engine.yard_state import YardState
from jobyard.executors.machines import MachineExecutor
from jobyard.executors.protocol import LiveAttempt
from jobyard.model.events import Event
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Slot
from jobyard.server.database import open_database
from jobyard.server.history import History
from jobyard.server.journal import Journal
from jobyard.server.loop import YardLoop
from jobyard.server.snapshots import Snapshots


class SlowJournal(Journal):
    """Each commit waits to be let go."""

    def __init__(self, path: Path) -> None:
        self.engine = open_database(f"sqlite:///{path}")
        super().__init__(self.engine)
        self.is_writing, self.may_go = threading.Event(), threading.Event()

    def append(self, events: Sequence[Event], at: float, jobs: Collection[str] | None = None) -> int:
        self.is_writing.set()
        assert self.may_go.wait(PATIENCE_SECONDS)
        return super().append(events, at, jobs)


def a_submit(state: YardState, now: float) -> tuple[list[Event], str]:
    return [submitted("job", 1, at=now)], "job"


def test_a_loop_that_is_told_to_finish_in_a_commit_leaves_memory_and_disk_the_same(tmp_path: Path) -> None:
    async def story() -> None:
        journal = SlowJournal(tmp_path / "yard.db")
        snapshots = Snapshots(tmp_path / "snapshot", "build", "yard")
        loop = YardLoop(journal, snapshots, History(journal.engine))
        running, asked = asyncio.create_task(loop.run()), asyncio.create_task(loop.ask(a_submit))
        await asyncio.to_thread(journal.is_writing.wait, PATIENCE_SECONDS)
        loop.finish()
        journal.may_go.set()
        await asyncio.wait_for(running, PATIENCE_SECONDS)
        assert await asked == "job"
        loop.save_snapshot()
        await loop.close()
        seq, state, _ = snapshots.restore(journal)
        assert (seq, list(state.jobs)) == (journal.last_seq(), ["job"]) == (1, ["job"])

    asyncio.run(story())


def test_nothing_is_journalled_before_its_commit_has_ended(tmp_path: Path) -> None:
    async def story() -> None:
        journal = SlowJournal(tmp_path / "yard.db")
        loop = YardLoop(journal, Snapshots(tmp_path / "snapshot", "build", "yard"), History(journal.engine))
        running, asked = asyncio.create_task(loop.run()), asyncio.create_task(loop.ask(a_submit))
        await asyncio.to_thread(journal.is_writing.wait, PATIENCE_SECONDS)
        assert list(loop.state.jobs) == ["job"]
        journalled = asyncio.create_task(loop.journalled())
        await asyncio.sleep(0)
        assert not journalled.done()
        journal.may_go.set()
        await asyncio.wait_for(journalled, PATIENCE_SECONDS)
        assert journal.last_seq() == 1
        await asked
        loop.finish()
        await running
        await loop.close()

    asyncio.run(story())


class UncommittedYard(PlayedYard):
    """Believes in an attempt that is not on disk, until that is asked for: the commit failed, and it is gone."""

    def __init__(self) -> None:
        super().__init__(job=a_job())
        self.believe(
            LiveAttempt(AttemptId("job", 0, 1), Slot("1", "job", 0, Placement("here", Resources(1000))), False)
        )

    async def journalled(self) -> None:
        await asyncio.sleep(0)
        self.live.clear()


def test_a_server_that_meets_its_agent_in_a_commit_names_only_what_is_on_disk(tmp_path: Path) -> None:
    async def story() -> None:
        agent = PlayedAgent(tmp_path)
        executor = MachineExecutor("local", "here", agent, UncommittedYard(), {"yard": "yard"}, tmp_path)
        async with agent.linked(executor):
            messages = [await agent.heard.get() for _ in range(3)]
        assert [message["op"] for message in messages] == ["hello", "probe", "reconcile"]
        assert messages[0]["pending"] is True
        assert messages[2]["live"] == []

    asyncio.run(story())
