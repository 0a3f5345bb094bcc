"""In which order is what another machine sends written, collected and reported?"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.builders import a_job
from tests.played_yard import PlayedYard
from tests.waiting import PATIENCE_SECONDS, until

from jobyard.executors import result_collector
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import LiveAttempt
from jobyard.executors.result_collector import RemoteFiles, ResultCollector
from jobyard.model.events import AttemptsFinished, Event, Finished
from jobyard.model.job import Reason
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Outcome, Slot

FIRST = AttemptId("j", 0, 1)
RECONCILE = "reconcile"


def output(text: str, offset: int = 0) -> dict[str, Any]:
    return {"id": str(FIRST), "stream": "out", "offset": offset, "data": base64.b64encode(text.encode()).decode()}


def an_end(reason: Reason | None = None) -> list[Event]:
    return [AttemptsFinished((Finished(FIRST, Outcome(1.0, 2.0, 0, reason=reason)),), 2.0)]


class Collected:
    """A collector, and what it did, in order."""

    def __init__(self, directory: Path, *, is_lost: bool = False) -> None:
        self.yard = PlayedYard(j=a_job())
        self.yard.believe(LiveAttempt(FIRST, Slot("1", "j", 0, Placement("here", Resources(1000))), False))
        self.mirror = Mirror(directory)
        self.story: asyncio.Queue[Any] = asyncio.Queue()
        self.trouble: Exception | None = None
        self._loop = asyncio.get_running_loop()
        remote = RemoteFiles(self.mirror, directory, self._collect, lease_seconds=60)
        tell, reconcile = self.story.put_nowait, lambda: self.story.put_nowait(RECONCILE)
        self.collector = ResultCollector("here", remote, self.yard, tell, reconcile, lambda: is_lost)

    def _collect(self, attempt: AttemptId) -> None:
        """In a thread."""
        written = self.mirror.path(attempt, "out").read_text()
        self._loop.call_soon_threadsafe(self.story.put_nowait, f"{attempt} has {written!r}")
        if self.trouble:
            raise self.trouble
        self.mirror.mark(attempt)

    async def next(self) -> Any:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.story.get()


@asynccontextmanager
async def collecting(directory: Path, **more: Any) -> AsyncIterator[Collected]:
    made = Collected(directory, **more)
    running = asyncio.create_task(made.collector.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_end_is_reported_once_all_output_is_written_and_the_results_are_collected(tmp_path: Path) -> None:
    async with collecting(tmp_path) as made:
        made.collector.output(output("one "))
        made.collector.output(output("two", 4))
        made.collector.ended(an_end(), [(str(FIRST), {"streams": {"out": 7}})])
        assert await made.next() == "j.0.1 has 'one two'"
        assert await made.next() == an_end()


async def test_an_end_with_bytes_missing_is_not_reported_and_the_machine_has_to_send_again(tmp_path: Path) -> None:
    async with collecting(tmp_path) as made:
        made.collector.output(output("one"))
        made.collector.ended(an_end(), [(str(FIRST), {"streams": {"out": 7}})])
        assert await made.next() == RECONCILE
        assert made.story.empty()


async def test_output_with_a_gap_before_it_makes_the_machine_send_again(tmp_path: Path) -> None:
    async with collecting(tmp_path) as made:
        made.collector.output(output("two", 4))
        assert await made.next() == RECONCILE


@pytest.mark.parametrize(("reason", "is_live"), [(None, False), (Reason.NODE_LOST, True)])
async def test_results_of_an_attempt_that_has_a_successor_are_left_alone(
    tmp_path: Path, reason: Reason | None, is_live: bool
) -> None:
    async with collecting(tmp_path) as made:
        if not is_live:
            made.yard.live.clear()
        made.collector.ended(an_end(reason), [(str(FIRST), {"streams": {"out": 7}})])
        assert await made.next() == an_end(reason)


async def test_an_attempt_whose_results_cannot_be_collected_has_ended_all_the_same(tmp_path: Path) -> None:
    async with collecting(tmp_path) as made:
        made.trouble = RuntimeError("a bug")
        made.collector.output(output("one"))
        made.collector.ended(an_end(), [(str(FIRST), {"streams": {"out": 3}})])
        await made.next()
        assert await made.next() == an_end()


async def test_what_a_machine_that_was_given_up_sends_does_not_count(tmp_path: Path) -> None:
    async with collecting(tmp_path, is_lost=True) as made:
        made.collector.output(output("one"))
        made.collector.ended(an_end(), [(str(FIRST), {"streams": {"out": 3}})])
        await made.next()
        assert await made.next() == an_end()
        assert made.mirror.is_stray(FIRST)


async def test_collected_results_are_marked_until_the_end_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_collector, "CONFIRM_SECONDS", 0.0)
    async with collecting(tmp_path) as made:
        made.collector.output(output("one"))
        made.collector.ended(an_end(), [(str(FIRST), {"streams": {"out": 3}})])
        await made.next()
        assert await made.next() == an_end()
        assert made.mirror.is_marked(FIRST)
        assert not made.mirror.is_stray(FIRST)
        made.yard.live.clear()
        await asyncio.to_thread(until, lambda: not made.mirror.is_marked(FIRST))


async def test_a_machine_waits_while_too_much_is_not_on_disk_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_collector, "MOST_WAITING", 3)
    async with collecting(tmp_path) as made:
        made.collector.output(output("more than three"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await made.collector.room()
        assert made.mirror.path(FIRST, "out").read_text() == "more than three"
