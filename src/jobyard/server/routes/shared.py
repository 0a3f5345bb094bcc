"""Shared by routes: getting at the yard, reading a request, answering with a view, and server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any

from fastapi import Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from jobyard.engine.job_record import JobRecord
from jobyard.model.codec import encode
from jobyard.model.task import AttemptId
from jobyard.server.finding import find_job, find_live_job
from jobyard.server.logs import tail_lines
from jobyard.server.problems import PlainJSON
from jobyard.server.views import job_view, unshowable
from jobyard.server.yard import Yard
from jobyard.wire.views import JobView

COUNT_MOST = 2**53  # JSON numbers above are not whole any more in most readers
TEXT_MOST = 1000  # the longest name that anything here has, with room
Selector = Annotated[str, Path(max_length=TEXT_MOST)]
Label = Annotated[str, Query(max_length=TEXT_MOST)]


def yard_of(request: Request) -> Yard:
    yard: Yard = request.app.state.yard
    return yard


def answer(view: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return PlainJSON(encode(view, defaults=True), status, headers)


def view_of(yard: Yard, job: JobRecord, *, detail: bool = True) -> JobView:
    """Never raises: a job that cannot be shown gets a view that says so, and others are not affected."""
    try:
        return _view_of(yard, job, detail)
    except Exception as error:
        yard.loop.trouble("view", f"job {job.id} cannot be shown ({error!r})", error)
        return unshowable(job, error)


def _view_of(yard: Yard, job: JobRecord, detail: bool) -> JobView:
    lines: tuple[str, ...] = ()
    if detail and job.first_failure is not None:
        failed = job.task(job.first_failure)
        lines = tail_lines(yard.loop, AttemptId(job.id, failed.number, failed.attempt))
    return job_view(yard.loop.planner, job, last_lines=lines, detail=detail)


def selected(yard: Yard, selector: str, *, live: bool = False) -> JobRecord:
    return (find_live_job if live else find_job)(yard.loop.state, selector)


def event_stream(yard: Yard, messages: AsyncGenerator[str, None]) -> StreamingResponse:
    """Server-sent events with a comment line now and then, so that a dead link shows."""

    async def body() -> AsyncIterator[str]:
        with yard.lifetime.request():
            pending: asyncio.Task[str] | None = None
            try:
                while True:
                    if pending is None:
                        pending = asyncio.ensure_future(anext(messages))
                    done, _ = await asyncio.wait({pending}, timeout=yard.heartbeat_seconds)
                    if not done:
                        yield ": still here\n\n"
                        continue
                    finished, pending = pending, None
                    try:
                        yield finished.result()
                    except StopAsyncIteration:
                        return
            finally:
                if pending is not None:
                    pending.cancel()
                    await asyncio.gather(pending, return_exceptions=True)
                await messages.aclose()

    return StreamingResponse(body(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def event(name: str, data: Any, cursor: str = "") -> str:
    """One server-sent event."""
    text = json.dumps(encode(data, defaults=True), separators=(",", ":"))
    return f"event: {name}\n{f'id: {cursor}' + chr(10) if cursor else ''}data: {text}\n\n"
