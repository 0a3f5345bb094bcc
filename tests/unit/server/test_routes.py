"""Routes without HTTP: what they answer, and what they leave behind."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobyard.errors import UserError
from jobyard.model.limits import PAGE_MOST
from jobyard.server.commands import submit
from jobyard.server.lifetime import Lifetime
from jobyard.server.limits import VIEWS_AT_ONCE
from jobyard.server.queries import ended_attempts
from jobyard.server.routes import events
from jobyard.server.routes.answers import event_stream
from jobyard.server.routes.jobs import list_jobs, list_tasks
from jobyard.server.routes.logs import stream_logs
from jobyard.wire.requests import SubmitJob
from tests.unit.server.running import a_request, a_yard, an_array


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


async def test_what_ended_last_is_listed_beside_many_newer_jobs(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        late = await yard.submit("sleep 60")
        ended = [await yard.submit("true") for _ in range(12)]
        for job in ended:
            await yard.ended(job)
        await yard.cancel(late, force=True)
        await yard.ended(late)
        newer = [await yard.submit("sleep 60") for _ in range(12)]
        found = [job["id"] for job in json.loads(bytes((await list_jobs(a_request(yard))).body))]
        assert set(found) == {*newer, *ended[-9:], late}, "what has not ended, and the ten that ended last"
        for job in newer:
            await yard.cancel(job, force=True)


async def test_an_empty_word_in_a_list_of_words_is_refused(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        with pytest.raises(UserError, match="state 'running,' is unknown; known: pending"):
            await list_jobs(a_request(yard), state="running,")
        with pytest.raises(UserError, match="stream 'out,': choose out, err"):
            await stream_logs(a_request(yard), "1", stream="out,")


async def test_tasks_come_in_pages_whatever_is_asked_for(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        size = 2 * PAGE_MOST + 5
        job = await yard.loop.ask(submit(SubmitJob(an_array("sleep 60", size - 1))))
        seen, offset, sizes = [], 0, []
        while True:
            page = await list_tasks(a_request(yard), job, limit=3_000_000, offset=offset)
            numbers = [task["number"] for task in json.loads(bytes(page.body))]
            seen += numbers
            sizes.append(len(numbers))
            if "yard-next" not in page.headers:
                break
            offset = int(page.headers["yard-next"])
        assert seen == list(range(size))
        assert sizes == [PAGE_MOST, PAGE_MOST, 5]
        await yard.cancel(job, force=True)


async def test_a_page_of_tasks_is_made_in_turns(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.loop.ask(submit(SubmitJob(an_array("sleep 60", 10 * PAGE_MOST))))
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        beside = asyncio.create_task(others())
        await list_tasks(a_request(yard), job, limit=10 * PAGE_MOST)
        beside.cancel()
        assert turns >= PAGE_MOST // VIEWS_AT_ONCE
        await yard.cancel(job, force=True)


async def test_jobs_come_in_pages_that_new_jobs_do_not_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.server.routes.jobs.PAGE_MOST", 4)
    async with a_yard(tmp_path) as yard:
        jobs = [await yard.submit("sleep 60") for _ in range(10)]
        seen: list[str] = []
        before: int | None = None
        while True:
            page = await list_jobs(a_request(yard), all=True, limit=1000, before=before)
            seen += [job["id"] for job in json.loads(bytes(page.body))]
            if "yard-next" not in page.headers:
                break
            before = int(page.headers["yard-next"])
            jobs.append(await yard.submit("sleep 60"))
        assert seen == jobs[:10][::-1]
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
        await yard.until(lambda: yard.job(job).tasks.unfinished == 1)
        assert [attempt.task for _, attempt in ended_attempts(yard.loop, job, range(3))] == [0, 1]
        await yard.cancel(job, force=True)


async def test_events_are_written_out_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of a million lines is one event."""
    threads: list[threading.Thread] = []
    write = events._messages

    def written(*given: Any) -> list[str]:
        threads.append(threading.current_thread())
        return write(*given)

    monkeypatch.setattr(events, "_messages", written)
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("true")
        await yard.ended(job)
        stream: Any = await events.stream_events(a_request(yard), since=0, last_event_id="")
        seen = ""
        async with asyncio.timeout(20):
            async for text in stream.body_iterator:
                seen += text
                if "event: AttemptsFinished" in seen:
                    break
        await stream.body_iterator.aclose()
    assert f'"{job}"' in seen
    assert threads
    assert threading.main_thread() not in threads
