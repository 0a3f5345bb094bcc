"""Answers of routes: how do they reach the yard, answer with a view or a changed job, and stream events?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any

from fastapi import Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from jobyard.errors import UserError
from jobyard.model.codec import encode
from jobyard.model.units import whole_number
from jobyard.server.problems import PlainJSON
from jobyard.server.queries import shown_job
from jobyard.server.rounds import Command
from jobyard.server.yard import Yard

COUNT_MOST = 2**53  # JSON numbers above are not whole any more in most readers
TEXT_MOST = 1000  # the longest name that anything here has, with room
Selector = Annotated[str, Path(max_length=TEXT_MOST)]
Label = Annotated[str, Query(max_length=TEXT_MOST)]
TASK_WORDS_MOST = 8000  # characters of `3,7-9` and the like: a line of HTTP has 64 KiB
Tasks = Annotated[str, Query(max_length=TASK_WORDS_MOST)]


def yard_of(request: Request) -> Yard:
    yard: Yard = request.app.state.yard
    return yard


def answer(view: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return PlainJSON(encode(view, defaults=True), status, headers)


async def changed_job(request: Request, command: Command[str]) -> Response:
    """Answers with the job as it is after the command, which returns its id."""
    yard = yard_of(request)
    with yard.lifetime.request():
        job_id = await yard.loop.ask(command)
        return answer(shown_job(yard.loop, job_id))


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


def row_after(last_event_id: str, since: int) -> int:
    """After which row of the journal a stream goes on: what its reader has seen counts before what it asked for first.

    Raises UserError for a cursor that is none.
    """
    after = whole_number(last_event_id) if last_event_id else since
    if after is None:
        raise UserError(f"event cursor {last_event_id[:40]!r} is not a number")
    return after
