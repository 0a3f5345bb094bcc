"""Routes without HTTP: what they answer, and what they leave behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jobyard.server.lifetime import Lifetime
from jobyard.server.routes.jobs import list_jobs
from jobyard.server.routes.results import _ended
from jobyard.server.routes.shared import event_stream
from tests.unit.server.running import RunningYard, a_yard


def a_request(running: RunningYard) -> Any:
    yard = SimpleNamespace(loop=running.loop, lifetime=Lifetime(None, lambda: False))
    return SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(yard=yard)))


async def test_every_unfinished_job_is_listed(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        await yard.ended(await yard.submit("true"))
        jobs = [await yard.submit("sleep 60") for _ in range(60)]
        request = a_request(yard)
        found = json.loads(bytes((await list_jobs(request, unfinished=True)).body))
        assert [job["id"] for job in found] == jobs[::-1]
        assert len(json.loads(bytes((await list_jobs(request, all=True)).body))) == 61
        assert len(json.loads(bytes((await list_jobs(request, all=True, limit=5)).body))) == 5
        for job in jobs:
            await yard.cancel(job, force=True)


async def test_a_stream_is_closed_with_the_link_and_shows_life_before(tmp_path: Path) -> None:
    closed = asyncio.Event()

    async def messages() -> AsyncGenerator[str, None]:
        try:
            yield "one"
            await asyncio.Event().wait()
        finally:
            closed.set()

    yard: Any = SimpleNamespace(lifetime=Lifetime(None, lambda: False), heartbeat_seconds=0.01)
    body: Any = event_stream(yard, messages()).body_iterator
    assert [await anext(body), await anext(body)] == ["one", ": still here\n\n"]
    await body.aclose()
    assert closed.is_set()


async def test_results_are_of_tasks_that_were_tried_and_have_ended(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("true", "exit 1", "sleep 60")
        await yard.until(lambda: yard.job(job).unfinished == 1)
        record = yard.job(job)
        assert (_ended(record, ""), _ended(record, "1"), _ended(record, "2")) == ([0, 1], [1], [])
        await yard.cancel(job, force=True)
