"""Does each tree that a machine misses come to it, and what if it cannot?"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.builders import a_job
from tests.waiting import PATIENCE_SECONDS

from jobyard.backoff import Backoff
from jobyard.errors import Rejected, Unavailable
from jobyard.executors import snapshot_sending
from jobyard.executors.agent_link import AgentLink
from jobyard.executors.protocol import LiveAttempt, SubmittedJob
from jobyard.executors.snapshot_sending import SnapshotSending
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Slot

LIVE = LiveAttempt(AttemptId("j", 0, 1), Slot("s", "j", 0, Placement("a", Resources(1000))), False)


Told = dict[str, Any]
RECONCILE: Told = {"op": "reconcile"}


class PlayedLink:
    def __init__(self, told: asyncio.Queue[Told]) -> None:
        self.send = told.put_nowait
        self.problem = ""


class Machine:
    """One that misses the tree `abc`: what it was sent, and what it was told."""

    address = sees_us_as = build = ""

    def __init__(self, *troubles: Exception) -> None:
        self.troubles = list(troubles)
        self.sent: list[tuple[str, Path]] = []
        self.told: asyncio.Queue[Told] = asyncio.Queue()
        self.link = PlayedLink(self.told)
        yard: Any = SimpleNamespace(
            live_attempts=lambda _: [LIVE], job=lambda _: SubmittedJob("j", 1, a_job(snapshot="abc"))
        )
        link = cast(AgentLink, self.link)
        self.sending = SnapshotSending("a", Path("/trees"), self, link, yard, partial(self.told.put_nowait, RECONCILE))

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise AssertionError("the link is there")

    async def send_snapshot(self, snapshot: str, tar: Path) -> None:
        self.sent.append((snapshot, tar))
        await asyncio.sleep(0)
        if self.troubles:
            raise self.troubles.pop(0)

    async def answer(self) -> Told:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.told.get()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_sending, "BACKOFF", Backoff(0.0, 0.0))
    monkeypatch.setattr(snapshot_sending, "TRIES", 2)


async def test_a_tree_is_sent_once_and_then_said_to_be_there() -> None:
    machine = Machine()
    machine.sending.send("abc")
    machine.sending.send("abc")
    assert await machine.answer() == {"op": "staged", "snapshot": "abc"}
    assert machine.sent == [("abc", Path("/trees/abc.tar"))]


async def test_a_tree_that_no_live_attempt_wants_is_not_sent() -> None:
    machine = Machine()
    machine.sending.send("../../etc/passwd")
    await asyncio.sleep(0)
    assert machine.sent == []


async def test_after_an_error_it_is_tried_again() -> None:
    machine = Machine(Unavailable("the link was cut"))
    machine.sending.send("abc")
    assert await machine.answer() == {"op": "staged", "snapshot": "abc"}
    assert machine.link.problem == "the link was cut"


async def test_what_can_never_be_put_there_fails_those_who_wait_for_it() -> None:
    machine = Machine(*[Rejected("its disk is full")] * 2)
    machine.sending.send("abc")
    assert await machine.answer() == {"op": "staged", "snapshot": "abc", "trouble": "its disk is full"}


async def test_a_machine_that_cannot_be_reached_is_reconciled() -> None:
    machine = Machine(*[Unavailable("no route to host")] * 2)
    machine.sending.send("abc")
    assert await machine.answer() == RECONCILE


async def test_nothing_is_sent_after_the_end() -> None:
    machine = Machine(*[Unavailable("no route to host")] * 2)
    machine.sending.send("abc")
    await asyncio.sleep(0)
    machine.sending.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert (len(machine.sent), machine.told.empty()) == (1, True)
