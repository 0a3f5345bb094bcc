"""How tasks ended, from the journal and as it happens."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

from jobyard.model.job import Command, GroupSpec, State
from jobyard.model.lines import Lines
from jobyard.server.commands import submit
from jobyard.server.endings import EndingStream
from jobyard.server.routes.endings import stream_endings
from jobyard.wire.requests import SubmitJob
from jobyard.wire.views import EndingView
from tests.builders import one_column
from tests.unit.server.running import RunningYard, a_batch, a_request, a_yard


async def endings(yard: RunningYard, job: str, after: int = 0) -> list[EndingView]:
    async with asyncio.timeout(60):
        return [view async for _, batch in EndingStream(yard.loop, job, after).batches() for view in batch]


async def test_each_task_that_ended_is_told_once_with_its_last_attempt(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("echo one", "exit 3", retries=1)
        live = await endings(yard, job)
        assert yard.job(job).is_final
        assert await endings(yard, job) == live, "the journal has them too"
        one, failed = sorted(live, key=lambda view: view.number)
        assert (one.task, one.attempt, one.state, one.exit_code, one.node) == ("0", 1, State.SUCCEEDED, 0, "here")
        assert (one.command, one.output_bytes) == ("echo one", 4)
        assert (failed.attempt, failed.state, failed.exit_code, failed.output_bytes) == (2, State.FAILED, 3, 0)
        assert failed.started_at <= failed.finished_at


async def test_an_ending_has_the_seq_that_its_command_sees(tmp_path: Path) -> None:
    inputs = replace(one_column(Lines.of(list("abc"))), chosen=((1, 2),))
    group = GroupSpec(Command(shell="echo {#} {}", inputs=inputs), completions=2)
    async with a_yard(tmp_path) as yard:
        spec = replace(a_batch("x", workdir=str(tmp_path)), groups=(group,))
        job = await yard.loop.ask(submit(SubmitJob(spec)))
        told = await endings(yard, job)
        assert sorted((view.seq, view.command) for view in told) == [(2, "echo 2 b"), (3, "echo 3 c")]


async def test_what_ended_before_a_row_and_tasks_of_other_jobs_are_not_told(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("true")
        await yard.ended(job)
        last = yard.journal.last_seq()
        other = await yard.submit("true")
        await yard.ended(other)
        assert await endings(yard, job, last) == []
        assert [view.number for view in await endings(yard, other, last)] == [0]


async def test_a_task_that_never_began_has_no_ending(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("sleep 60", "true", cpus=4.0)
        await yard.running(job)
        await yard.cancel(job, force=True)
        assert [view.number for view in await endings(yard, job)] == [0]


async def test_the_last_ending_of_a_row_carries_its_number(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit(*["true"] * 5)
        await yard.ended(job)
        answer = await stream_endings(a_request(yard), job)
        text = "".join([str(piece) async for piece in answer.body_iterator])  # type: ignore[attr-defined]
        told = [message.split("\n") for message in text.strip().split("\n\n")]
        assert told[-1] == ["event: end", "data: {}"]
        assert [line for line in told[-2] if line.startswith("id: ")]
        assert len({json.loads(lines[-1].removeprefix("data: "))["number"] for lines in told[:-1]}) == 5
