"""What goes wrong with one job or one message on a machine stays with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from tests.builders import a_job
from tests.played_agent import Wire
from tests.played_yard import PlayedYard

from jobyard.errors import Unavailable
from jobyard.executors.agent_link import Transport
from jobyard.executors.machines import MachineExecutor
from jobyard.executors.protocol import LiveAttempt, SubmittedJob
from jobyard.model.effects import Effect, Launch
from jobyard.model.events import AttemptsFinished, Event
from jobyard.model.job import Reason
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Slot
from jobyard.model.training import Training


class Yard(PlayedYard):
    is_away = False

    def job(self, job_id: str) -> SubmittedJob:
        if self.is_away:
            raise Unavailable("not now")
        return super().job(job_id)


def a_slot(number: int, job: str) -> Slot:
    return Slot(str(number), job, 0, Placement("here", Resources(1000)))


def a_launch(number: int, job: str) -> Launch:
    return Launch("here", a_slot(number, job), (AttemptId(job, 0, 1),))


def connected(yard: Yard) -> tuple[MachineExecutor, Wire]:
    transport = cast(Transport, object())
    executor = MachineExecutor("local", "here", transport, yard, {}, Path("/nowhere"))
    wire = Wire()
    executor._link.open(cast(asyncio.StreamWriter, wire), {"pid": 1, "build": ""})
    return executor, wire


def seen(executor: MachineExecutor) -> list[Event]:
    found = []
    while not executor._seen.empty():
        found += executor._seen.get_nowait()
    return found


POISON = replace(a_job(), env={"MASTER_PORT": "abc"}, gang=True, training=Training(1))


async def test_a_launch_that_cannot_be_written_fails_its_attempts_and_no_others() -> None:
    yard = Yard(good=a_job(), bad=POISON)
    executor, wire = connected(yard)
    executor.perform([a_launch(1, "bad"), a_launch(2, "good")])
    assert [(line["op"], line["job"]) for line in wire.messages] == [("job", "good"), ("launch", "good")]
    (ended,) = seen(executor)
    assert isinstance(ended, AttemptsFinished)
    ((attempt, outcome),) = ended.items
    assert (attempt.job, outcome.reason) == ("bad", Reason.REFUSED)
    assert outcome.message == "it cannot be launched (MASTER_PORT 'abc' is no number; give a port, like 29500)"
    assert len(yard.errors) == 1


async def test_a_launch_that_is_unavailable_now_ends_nothing() -> None:
    yard = Yard(good=a_job())
    yard.is_away = True
    executor, wire = connected(yard)
    executor.perform([a_launch(1, "good")])
    assert (wire.messages, seen(executor)) == ([], [])


async def test_after_a_reconnection_the_poisoned_job_fails_and_the_others_begin() -> None:
    yard = Yard(good=a_job(), bad=POISON)
    yard.believe(*(LiveAttempt(AttemptId(job, 0, 1), a_slot(i, job), False) for i, job in enumerate(("bad", "good"))))
    executor, wire = connected(yard)
    executor._hear({"ev": "reconciled", "absent": ["bad.0.1", "good.0.1"]})
    assert [line["job"] for line in wire.messages if line["op"] == "launch"] == ["good"]
    assert [type(event) for event in seen(executor)] == [AttemptsFinished]


async def test_nothing_of_a_job_in_quarantine_is_begun_or_stopped_again() -> None:
    yard = Yard(good=a_job(), odd=a_job())
    yard.believe(*(LiveAttempt(AttemptId(job, 0, 1), a_slot(i, job), True) for i, job in enumerate(("odd", "good"))))
    yard.held = ("odd",)
    executor, wire = connected(yard)
    executor._stop_again(yard.live_attempts("here"))
    assert [line["ids"] for line in wire.messages] == [["good.0.1"]]
    yard.believe(*(item._replace(is_stopping=False) for item in yard.live.values()))
    executor._hear({"ev": "reconciled", "absent": ["odd.0.1", "good.0.1"]})
    assert [line["job"] for line in wire.messages if line["op"] == "launch"] == ["good"]


async def test_what_the_agent_refuses_fails_with_its_sentence() -> None:
    yard = Yard()
    executor, _ = connected(yard)
    executor._hear({"ev": "error", "message": "env: must be an object of strings", "ids": ["ab.3.1"]})
    (ended,) = seen(executor)
    assert isinstance(ended, AttemptsFinished)
    assert (ended.items[0].attempt, ended.items[0].outcome.reason) == (AttemptId("ab", 3, 1), Reason.REFUSED)
    assert "the agent of here refused it: env: must be" in ended.items[0].outcome.message


@pytest.mark.parametrize("effects", [[], [a_launch(1, "good")]])
async def test_without_a_link_nothing_is_done(effects: list[Effect]) -> None:
    executor, wire = connected(Yard(good=a_job()))
    executor._link.closed()
    executor.perform(effects)
    await asyncio.sleep(0)
    assert (wire.messages, seen(executor)) == ([], [])


async def test_the_addresses_of_a_gang_are_looked_up_once_for_all_its_launches() -> None:
    class Counting(Yard):
        lookups = 0

        def gang_addresses(self, job_id: str) -> Sequence[str]:
            self.lookups += 1
            return ["10.0.0.1"] * 100

    yard = Counting(gang=a_job(100, gang=True))
    executor, wire = connected(yard)
    executor.perform([Launch("here", a_slot(rank, "gang"), (AttemptId("gang", rank, 1),)) for rank in range(100)])
    launches = [line for line in wire.messages if line["op"] == "launch"]
    assert {line["items"][0]["env"]["MASTER_ADDR"] for line in launches} == {"10.0.0.1"}
    assert (len(launches), yard.lookups) == (100, 1)
