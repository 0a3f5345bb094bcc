"""Does each effect go to the executor of its place, and does one that fails hurt no other?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from jobyard.errors import Unavailable
from jobyard.executors.protocol import AgentStatus, Executor
from jobyard.model.effects import CloseSlot, Effect, Launch
from jobyard.model.events import AttemptsFinished, Event, NodeWentAway
from jobyard.model.job import Reason
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Slot
from jobyard.server.error_counts import ErrorCounts
from jobyard.server.running_executors import RunningExecutors
from tests.waiting import PATIENCE_SECONDS


class PlayedExecutor:
    """Fails with whatever is about a slot of the test's choice."""

    def __init__(self, node: str, error: Exception | None = None) -> None:
        self.node = node
        self.error = error
        self.done: list[Effect] = []
        self.runs = 0
        self.is_dismissed = False

    def status(self) -> AgentStatus:
        return AgentStatus(self.node, 1, "", True)

    def perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if self.error and isinstance(effect, Launch) and effect.slot.id == "bad":
                raise self.error
            self.done.append(effect)

    async def run(self) -> None:
        self.runs += 1
        await asyncio.Event().wait()

    async def observations(self) -> AsyncIterator[Sequence[Event]]:
        yield [NodeWentAway(self.node, 1.0)]
        await asyncio.Event().wait()

    def dismiss(self) -> None:
        self.is_dismissed = True


class Places:
    def __init__(self, *executors: PlayedExecutor) -> None:
        self.seen: asyncio.Queue[Sequence[Event]] = asyncio.Queue()
        self.error_counts = ErrorCounts()
        self.executors = RunningExecutors(self.seen.put_nowait, self.error_counts)
        for executor in executors:
            self.executors.add(played(executor))

    async def next_seen(self) -> Event:
        async with asyncio.timeout(PATIENCE_SECONDS):
            (event,) = await self.seen.get()
        return event


def played(executor: PlayedExecutor) -> Executor:
    return cast(Executor, cast(Any, executor))


def a_launch(node: str, slot: str) -> Launch:
    return Launch(node, Slot(slot, "j", 0, Placement(node, Resources(1000))), (AttemptId("j", 0, 1),))


def test_effects_go_to_the_machine_or_the_cluster_that_they_are_for() -> None:
    machine, cluster = PlayedExecutor("here"), PlayedExecutor("lab")
    places = Places(machine, cluster)
    first, second, third = a_launch("here", "1"), a_launch("lab/n1", "2"), CloseSlot("nowhere", "3")
    places.executors.perform([first, second, third])
    assert (machine.done, cluster.done) == ([first], [second])
    found = [places.executors.of(node) for node in ("here", "lab/n2", "x")]
    assert found == [played(machine), played(cluster), None]


@pytest.mark.parametrize(("error", "ends"), [(ValueError("no port"), 1), (Unavailable("not now"), 0)])
async def test_a_launch_that_fails_ends_its_attempts_alone_unless_it_is_tried_again(
    error: Exception, ends: int
) -> None:
    machine = PlayedExecutor("here", error)
    places = Places(machine)
    bad, good = a_launch("here", "bad"), a_launch("here", "good")
    places.executors.perform([bad, good])
    assert good in machine.done
    assert places.seen.qsize() == ends
    assert [view.count for view in places.error_counts.views()] == [1]
    if ends:
        event = await places.next_seen()
        assert isinstance(event, AttemptsFinished)
        ((attempt, outcome),) = event.items
        assert (attempt, outcome.reason) == (AttemptId("j", 0, 1), Reason.REFUSED)
        assert outcome.message == "it cannot be launched (no port)"


async def test_who_is_started_is_heard_and_runs_once_after_a_restart() -> None:
    machine, other = PlayedExecutor("here"), PlayedExecutor("lab")
    places = Places(machine, other)
    places.executors.start(played(machine))
    assert await places.next_seen() == NodeWentAway("here", 1.0)
    await places.executors.restart()  # also who was only known before
    assert {(await places.next_seen()).node for _ in range(2)} == {"here", "lab"}  # type: ignore[attr-defined]
    await places.executors.stop()
    assert (machine.runs, other.runs) == (2, 1)
    assert list(places.executors) == [played(machine), played(other)]


async def test_who_is_removed_is_dismissed_and_known_no_longer() -> None:
    machine = PlayedExecutor("here")
    places = Places(machine)
    places.executors.start(played(machine))
    await places.next_seen()
    places.executors.remove("here")
    places.executors.remove("here")
    assert (machine.is_dismissed, list(places.executors)) == (True, [])
    await asyncio.sleep(0)
