"""What does the yard make of an agent that lies?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.builders import a_job
from tests.played_agent import WELCOME, PlayedAgent
from tests.played_yard import PlayedYard

from jobyard.agent_protocol.lines import LARGEST_LINE, MOST_VALUES
from jobyard.executors.heard import Heard, welcome_problem
from jobyard.executors.machines import MachineExecutor
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import LiveAttempt
from jobyard.executors.result_collector import RemoteFiles
from jobyard.model.events import AttemptsFinished, AttemptsStarted, Event, NodeJoined
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Slot

OWN, OTHERS, ENDED = AttemptId("mine", 0, 1), AttemptId("theirs", 0, 1), AttemptId("mine", 0, 0)
END = {"started_at": 1.0, "finished_at": 2.0, "exit_code": 0}
FOREIGN = {"cpu_millis": 0, "memory_mib": 0, "device_mib": {}}
MEASURED = {"ev": "measured", "devices": [], "load": 0.5, "foreign": FOREIGN}


class TwoNodes(PlayedYard):
    """One attempt is on the liar's node, one on another's, and one has ended."""

    def __init__(self) -> None:
        super().__init__("a", mine=a_job(), theirs=a_job())
        self.believe(LiveAttempt(OWN, Slot("1", OWN.job, 0, Placement("a", Resources(1000))), False))

    def node_of(self, attempt: AttemptId) -> str | None:
        return {OWN: "a", OTHERS: "b", ENDED: ""}.get(attempt)


def heard() -> Heard:
    return Heard("a", TwoNodes())


@pytest.mark.parametrize(
    "change",
    [
        {"exit_code": "x"},
        {"exit_code": 256},
        {"exit_code": -1},
        {"exit_code": True},
        {"signal": 99},
        {"started_at": float("nan")},
        {"finished_at": float("inf")},
        {"finished_at": -3},
        {"finished_at": 1e300},
        {"finished_at": None},
    ],
)
def test_an_end_that_cannot_be_is_ignored_and_the_others_count(change: dict[str, Any]) -> None:
    ears = heard()
    lie = [str(OWN), {**END, **change}]
    found = ears.checked({"ev": "attempts", "finished": [lie, [str(OWN), END]]})
    assert found is not None
    assert found["finished"] == [[str(OWN), END]]
    assert ears.ignored == 1
    assert "mine.0.1" in ears.problem


@pytest.mark.parametrize(
    "beside",
    [
        {"reason": "Boredom"},
        {"reason": ["x"]},
        {"peak_memory_mib": 1 << 60},
        {"peak_memory_mib": -1},
        {"peak_gpu_memory_mib": 0.5},
        {"message": ["x"]},
        {"progress": {"epochs_done": "many"}},
        {"progress": {"metrics": {"loss": float("nan")}}},
        {"progress": 3},
        {"streams": {"../../passwd": 1}},
        {"streams": {"out": -1}},
        {"streams": [1]},
    ],
)
def test_an_end_counts_without_what_stands_beside_it_and_cannot_be(beside: dict[str, Any]) -> None:
    ears = heard()
    found = ears.checked({"ev": "attempts", "finished": [[str(OWN), {**END, **beside}]]})
    assert found is not None
    assert found["finished"] == [[str(OWN), END]]
    assert ears.ignored == 1
    assert "mine.0.1" in ears.problem


def test_a_long_message_of_an_end_is_cut() -> None:
    found = heard().checked({"ev": "attempts", "finished": [[str(OWN), {**END, "message": "x" * 5000}]]})
    assert found is not None
    assert found["finished"] == [[str(OWN), {**END, "message": "x" * 4096}]]


@pytest.mark.parametrize("name", [str(OTHERS), "no-such-job.0.1", "mine.0.2", "mine.-1.1", "../../x.0.1", "x", 3, None])
def test_a_node_reports_on_no_attempt_that_it_was_not_given(name: Any) -> None:
    ears = heard()
    told = {"started": [[name, 1.0]], "finished": [[name, END]], "withdrawn": [name]}
    assert ears.checked({"ev": "attempts", **told}) == {
        "ev": "attempts",
        "started": [],
        "finished": [],
        "withdrawn": [],
    }
    assert ears.ignored == 3
    assert ears.checked({"ev": "output", "id": name, "stream": "out", "offset": 0, "data": "YWI="}) is None
    found = ears.checked({**MEASURED, "attempts": {str(name): {"memory_mib": 1, "gpu_memory_mib": 1}}})
    assert found is not None
    assert found["attempts"] == {}
    progress = ears.checked({"ev": "progress", "attempts": {str(name): {"epochs_done": 1}}})
    assert progress == {"ev": "progress", "attempts": {}}
    assert ears.ignored == 6
    assert ears.checked({"ev": "reconciled", "absent": [name]}) == {"ev": "reconciled", "absent": []}
    refusal = ears.checked({"ev": "error", "message": "no", "ids": [name]})
    assert refusal == {"ev": "error", "message": "no", "ids": []}


def test_a_report_that_comes_late_is_no_lie() -> None:
    ears = heard()
    assert ears.checked({"ev": "attempts", "started": [[str(ENDED), 1.0]]}) is not None
    assert ears.problem == ""


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"ev": 3},
        {"ev": ["attempts"]},
        {"ev": "dance"},
        {"ev": "attempts", "finished": 3},
        {"ev": "attempts", "started": {"a": 1}},
        {"ev": "progress"},
        {"ev": "progress", "attempts": []},
        {"ev": "missing", "snapshot": ["x"]},
        {"ev": "output", "id": str(OWN), "stream": "../x", "offset": 0, "data": "YWI="},
        {"ev": "output", "id": str(OWN), "stream": "out", "offset": "x", "data": "YWI="},
        {"ev": "output", "id": str(OWN), "stream": "out", "offset": -1, "data": "YWI="},
        {"ev": "output", "id": str(OWN), "stream": "out", "offset": 0, "data": "YWI"},
        {"ev": "measured"},
        {**MEASURED, "load": float("nan")},
        {**MEASURED, "foreign": {**FOREIGN, "memory_mib": -1}},
        {**MEASURED, "foreign": {**FOREIGN, "device_mib": {"x": 1}}},
        {**MEASURED, "foreign": {**FOREIGN, "holders": ["x" * 9999]}},
        {**MEASURED, "devices": [{"index": 0, "used_mib": 1e300, "utilisation": 0}]},
        {**MEASURED, "runtime": "docker"},
        {"ev": "refused"},
        {"ev": "error"},
    ],
)
def test_what_makes_no_sense_is_ignored_and_counted(message: dict[str, Any]) -> None:
    ears = heard()
    found = ears.checked(message)
    assert found is None or not (found["started"] or found["finished"])
    assert ears.ignored == 1


@pytest.mark.parametrize(
    "change",
    [
        {"cpu_millis": float("nan")},
        {"memory_mib": 1 << 60},
        {"pid": "x"},
        {"devices": [{"index": 0, "name": "g", "memory_mib": 1}] * 2},
        {"devices": [{"index": 0, "name": "g", "memory_mib": -1}]},
        {"devices": {}, "boot_id": None},
        {"now": float("inf")},
    ],
)
def test_a_machine_that_cannot_be_does_not_join(change: dict[str, Any]) -> None:
    assert welcome_problem(WELCOME) == ""
    assert welcome_problem({**WELCOME, **change})


# -- over a link that the test holds the other end of ------------------------------------------------------------------


@asynccontextmanager
async def a_liar(
    directory: Path, yard: TwoNodes | None = None
) -> AsyncIterator[tuple[MachineExecutor, asyncio.Queue[asyncio.StreamWriter]]]:
    """An executor with a disk of its own, and the connections to its agent, welcomed already."""
    agent, mirror = PlayedAgent(directory), Mirror(directory / "mirror")
    remote = RemoteFiles(mirror, directory, lambda attempt: None, lease_seconds=60)
    executor = MachineExecutor("ssh", "a", agent, yard or TwoNodes(), {}, mirror.directory, remote)
    async with agent.linked(executor):
        yield executor, agent.links


async def seen(executor: MachineExecutor, kind: type[Event]) -> Event:
    """The next event of a kind."""
    async for events in executor.observations():
        for event in events:
            if isinstance(event, kind):
                return event
    raise AssertionError("unreachable")


def _content(directory: Path) -> set[bytes]:
    return {path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != "placed"}


def said(**message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


async def test_lies_are_passed_over_and_the_same_link_goes_on(tmp_path: Path) -> None:
    async with a_liar(tmp_path) as (executor, links):
        agent = await links.get()
        agent.write(said(ev="dance") + said(ev="attempts", finished=[[str(OTHERS), END], [str(OWN), {}]]))
        agent.write(said(ev="output", id="../../../x.0.1", stream="out", offset=0, data="YWI="))
        agent.write(said(ev="output", id=str(OWN), stream="results/../../x", offset=0, data="YWI="))
        agent.write(said(ev="attempts", started=[[str(OTHERS), 1.0], [str(OWN), 1.0]]))
        agent.write(said(**MEASURED) + said(ev="output", id=str(OWN), stream="out", offset=0, data="YWI="))
        agent.write(said(ev="attempts", finished=[[str(OWN), {**END, "streams": {"out": 2}}]]))
        started = await seen(executor, AttemptsStarted)
        assert isinstance(started, AttemptsStarted)
        assert [item.attempt for item in started.items] == [OWN]
        assert await seen(executor, NodeJoined)
        ended = await seen(executor, AttemptsFinished)
        assert isinstance(ended, AttemptsFinished)
        assert [item.attempt for item in ended.items] == [OWN]
        assert "6 times" in executor.status().problem
    assert _content(tmp_path) == {b"ab"}


TOO_LONG = b"x" * (LARGEST_LINE + 1)
TOO_MUCH = b'{"ev":"reconciled","absent":[' + b"0," * MOST_VALUES + b"0]}\n"


@pytest.mark.parametrize("line", [b"[" * 100_000 + b"\n", TOO_LONG, TOO_MUCH, b"3\n", b"\xff\n"])
async def test_words_that_cannot_be_read_end_the_link_and_the_next_one_counts(tmp_path: Path, line: bytes) -> None:
    async with a_liar(tmp_path) as (executor, links):
        agent = await links.get()
        agent.write(line)
        again = await links.get()
        again.write(said(**MEASURED))
        assert await seen(executor, NodeJoined)
        assert executor.status().problem.startswith("its agent said once what cannot be")


class Turns(TwoNodes):
    """Notes who had a turn: the lines of an agent, or somebody else."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[str] = []

    def node_of(self, attempt: AttemptId) -> str | None:
        self.turns.append("line")
        return super().node_of(attempt)

    async def others(self) -> None:
        while True:
            self.turns.append("other")
            await asyncio.sleep(0)


async def test_others_have_their_turn_after_each_line_of_a_node_that_lies_in_bulk(tmp_path: Path) -> None:
    yard, lies = Turns(), 500
    async with a_liar(tmp_path, yard) as (executor, links):
        (await links.get()).write(said(ev="reconciled", absent=[str(OTHERS)]) * lies + said(**MEASURED))
        others = asyncio.create_task(yard.others())
        assert await seen(executor, NodeJoined)
        others.cancel()
    assert yard.turns.count("line") == lies
    assert not [pair for pair in pairwise(yard.turns) if pair == ("line", "line")]
