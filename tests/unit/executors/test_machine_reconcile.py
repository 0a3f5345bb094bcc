"""What is compared with an agent when a link is made, and what follows from the difference?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.builders import a_job
from tests.played_agent import PlayedAgent, said
from tests.played_yard import PlayedYard

from jobyard.executors.machines import MachineExecutor
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import LiveAttempt, Stored
from jobyard.executors.result_collector import RemoteFiles
from jobyard.model.effects import CloseSlot, Effect, Forget, Launch, Reserve, Stop, Withdraw, Yield
from jobyard.model.events import AttemptsWithdrawn, Event
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Slot

FIRST = AttemptId("j", 0, 1)
SLOT = Slot("1", "j", 0, Placement("here", Resources(1000)))


def live(**more: Any) -> LiveAttempt:
    return LiveAttempt(FIRST, SLOT, **{"is_stopping": False, **more})


def a_yard(*attempts: LiveAttempt) -> PlayedYard:
    yard = PlayedYard(j=a_job(grace_seconds=5.0))
    yard.believe(*attempts)
    return yard


class Machine:
    """An executor and its agent, both at work."""

    def __init__(self, directory: Path, yard: PlayedYard, *, is_remote: bool = False, **welcome: Any) -> None:
        self.agent = PlayedAgent(directory, **welcome)
        self.mirror = Mirror(directory / "mirror")
        remote = RemoteFiles(self.mirror, directory / "trees", lambda _: None, 60.0) if is_remote else None
        self.executor = MachineExecutor("local", "here", self.agent, yard, {}, directory, remote)

    async def seen(self, kind: type[Event]) -> Event:
        async for events in self.executor.observations():
            if found := [event for event in events if isinstance(event, kind)]:
                return found[0]
        raise AssertionError("unreachable")


@asynccontextmanager
async def a_machine(directory: Path, yard: PlayedYard, **more: Any) -> AsyncIterator[Machine]:
    machine = Machine(directory, yard, **more)
    async with machine.agent.linked(machine.executor):
        yield machine


async def test_the_agent_is_told_what_is_believed_of_it_and_which_jobs_are_held(tmp_path: Path) -> None:
    yard = a_yard(live())
    yard.held = ("odd",)
    async with a_machine(tmp_path, yard) as machine:
        assert (await machine.agent.next("hello"))["pending"] is True
        reconcile = await machine.agent.next("reconcile")
        assert (reconcile["live"], reconcile["have"], reconcile["held"]) == (["j.0.1"], {}, ["odd"])
        assert machine.executor.status().is_connected


async def test_an_agent_with_a_disk_of_its_own_goes_on_from_the_bytes_that_are_here(tmp_path: Path) -> None:
    async with a_machine(tmp_path, a_yard(live()), is_remote=True) as machine:
        path = machine.mirror.path(FIRST, "out")
        path.parent.mkdir(parents=True)
        path.write_text("12345")
        await machine.agent.next("reconcile")
        (await machine.agent.links.get()).close()
        reconcile = await machine.agent.next("reconcile")
        assert reconcile["have"] == {"j.0.1": {"out": 5, "err": 0, "results": 0}}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"is_stopping": True}, {"op": "stop", "ids": ["j.0.1"], "grace": 5.0}),
        (
            {"is_stopping": True, "is_yielding": True, "yield_seconds": 60.0},
            {"op": "yield", "ids": ["j.0.1"], "deadline": 60.0, "grace": 5.0, "at_once": False},
        ),
    ],
)
async def test_a_stop_that_may_not_have_arrived_is_asked_again(
    tmp_path: Path, asked: dict[str, Any], message: dict[str, Any]
) -> None:
    async with a_machine(tmp_path, a_yard(live(**asked))) as machine:
        assert await machine.agent.next(message["op"]) == message


@pytest.mark.parametrize(("is_stopping", "is_launched"), [(False, True), (True, False)])
async def test_what_the_agent_has_no_record_of_starts_now_or_never(
    tmp_path: Path, is_stopping: bool, is_launched: bool
) -> None:
    async with a_machine(tmp_path, a_yard(live(is_stopping=is_stopping))) as machine:
        await machine.agent.next("reconcile")
        (await machine.agent.links.get()).write(said({"ev": "reconciled", "absent": ["j.0.1"]}))
        if is_launched:
            assert [item["id"] for item in (await machine.agent.next("launch"))["items"]] == ["j.0.1"]
        else:
            event = await machine.seen(AttemptsWithdrawn)
            assert isinstance(event, AttemptsWithdrawn)
            assert event.attempts == (FIRST,)


async def test_an_agent_of_another_build_leaves_when_nothing_runs_there(tmp_path: Path) -> None:
    async with a_machine(tmp_path, a_yard(), build="older") as machine:
        assert (await machine.agent.next("reconcile"))["live"] == []
        await machine.agent.next("quit")
        assert not machine.executor.status().is_connected


async def test_an_agent_of_another_build_stays_while_something_runs_there(tmp_path: Path) -> None:
    async with a_machine(tmp_path, a_yard(live()), build="older") as machine:
        assert (await machine.agent.next("reconcile"))["live"] == ["j.0.1"]
        assert machine.executor.status().build == "older"


async def test_a_lost_connection_is_made_again_and_reconciled_again(tmp_path: Path) -> None:
    yard = a_yard(live())
    async with a_machine(tmp_path, yard) as machine:
        await machine.agent.next("reconcile")
        yard.live.clear()
        (await machine.agent.links.get()).close()
        assert (await machine.agent.next("reconcile"))["live"] == []


async def test_room_that_another_yard_holds_is_measured_before_it_is_asked_for_again(tmp_path: Path) -> None:
    async with a_machine(tmp_path, a_yard(live())) as machine:
        await machine.agent.next("reconcile")
        refused = {"ev": "refused", "slot": "1", "message": "held by ada", "ids": []}
        (await machine.agent.links.get()).write(said(refused))
        await machine.agent.next("probe")


async def test_a_tree_that_the_machine_misses_is_sent_to_it(tmp_path: Path) -> None:
    yard = PlayedYard(j=a_job(snapshot="abc"))
    yard.believe(live())
    async with a_machine(tmp_path, yard, is_remote=True) as machine:
        await machine.agent.next("reconcile")
        (await machine.agent.links.get()).write(said({"ev": "missing", "snapshot": "abc"}))
        assert (await machine.agent.next("staged"))["snapshot"] == "abc"
        assert machine.agent.trees == [("abc", tmp_path / "trees" / "abc.tar")]


@pytest.mark.parametrize(
    ("effect", "operation"),
    [
        (Launch("here", SLOT, (FIRST,)), "launch"),
        (Stop("here", (FIRST,), 5.0), "stop"),
        (Yield("here", (FIRST,), 60.0, 5.0, at_once=False), "yield"),
        (Reserve("here", SLOT), "reserve"),
        (Withdraw("here", (FIRST,)), "withdraw"),
        (CloseSlot("here", "1"), "close"),
    ],
)
async def test_every_effect_is_a_message(tmp_path: Path, effect: Effect, operation: str) -> None:
    async with a_machine(tmp_path, a_yard()) as machine:
        await machine.agent.next("reconcile")
        machine.executor.perform([effect])
        await machine.agent.next(operation)


async def test_an_agent_is_asked_what_it_stores_and_told_what_to_delete(tmp_path: Path) -> None:
    async with a_machine(tmp_path, a_yard()) as machine:
        await machine.agent.next("reconcile")
        asked = asyncio.create_task(machine.executor.stored())
        await machine.agent.next("stored")
        said_it = {"ev": "stored", "jobs": ["a", "b"], "snapshots": ["c0de"]}
        (await machine.agent.links.get()).write(said(said_it))
        assert await asked == Stored(["a", "b"], ["c0de"])
        machine.executor.perform([Forget("here", ("a",), ("c0de",))])
        assert await machine.agent.next("forget") == {"op": "forget", "jobs": ["a"], "snapshots": ["c0de"]}


async def test_an_agent_that_is_away_or_of_another_build_is_not_asked(tmp_path: Path) -> None:
    machine = Machine(tmp_path, a_yard())
    assert await machine.executor.stored() is None
    async with a_machine(tmp_path, a_yard(live()), build="older") as machine:
        await machine.agent.next("reconcile")
        assert await machine.executor.stored() is None
