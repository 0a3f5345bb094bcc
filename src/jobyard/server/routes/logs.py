"""GET /jobs/{selector}/logs: what tasks wrote, as a resumable stream or as raw bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from jobyard.errors import NotFound, OutputDamaged, UserError
from jobyard.model.job import State
from jobyard.model.task import AttemptId
from jobyard.server.declarations import EventStream, Media, answers
from jobyard.server.log_request import log_request
from jobyard.server.logs import CHUNK_BYTES, STREAMS, LogStream, damage_of, log_path, log_size, open_log
from jobyard.server.ordered_logs import OrderedLogStream
from jobyard.server.queries import submitted_job, task_now
from jobyard.server.routes.answers import COUNT_MOST, Label, Selector, Tasks, event, event_stream, yard_of
from jobyard.server.yard import Yard
from jobyard.wire.views import LogChunk

router = APIRouter()
Attempt = Annotated[int | None, Query(ge=1, le=COUNT_MOST)]


def _streams(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if any(name not in STREAMS for name in names):
        raise UserError(f"stream {text!r}: choose out, err or out,err")
    return names


@router.get("/jobs/{selector}/logs")
@answers(EventStream(LogChunk))
async def stream_logs(
    request: Request,
    selector: Selector,
    task: Tasks = "",
    attempt: Attempt = None,
    stream: str = "out,err",
    follow: bool = False,
    tail: Annotated[int | None, Query(ge=0, le=COUNT_MOST)] = None,
    failed: bool = False,
    ordered: bool = False,
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """`task` may name several, as in `3,7-9`. `ordered`: task by task, each once it and all before it have ended."""
    if failed and (follow or ordered):
        raise UserError("failed: it is for tasks that have failed already; leave out follow and ordered")
    yard = yard_of(request)
    wanted = log_request(yard.loop, selector, task, attempt, _streams(stream), tail, only_failed=failed)
    kind = OrderedLogStream if ordered else LogStream
    logs = kind(yard.loop, wanted, follow=follow, cursor=last_event_id)

    async def messages() -> AsyncGenerator[str, None]:
        async with aclosing(logs.chunks()) as chunks:
            async for chunk in chunks:
                yield event("log", chunk, logs.cursor())
                await asyncio.sleep(0)  # a cursor may have 800 KB: others have their turn after each
        if logs.is_cut:
            yield event("cut", {}, logs.cursor())
            return
        # A server that stops also ends its streams; `final` says that this one is complete.
        yield event("log", LogChunk("", 0, "out", "", final=True), logs.cursor())

    return event_stream(yard, messages())


@router.get("/jobs/{selector}/logs/raw")
@answers(Media("application/octet-stream"))
async def raw_log(
    request: Request, selector: Selector, task: Label = "", attempt: Attempt = None, stream: str = "out"
) -> Response:
    yard = yard_of(request)
    job = submitted_job(yard.loop, selector)
    if not task and job.spec.size > 1:
        raise UserError(f"job {job.number} has {job.spec.size} tasks; name one with task=")
    number = job.spec.number_of(task) if task else 0
    wanted = log_request(yard.loop, job.id, task or job.spec.label_of(0), attempt, _streams(stream)[:1])
    for each in wanted.attempts_of(number):
        path = log_path(yard.loop, AttemptId(job.id, number, each), wanted.streams[0])
        if sentence := damage_of(path):
            raise OutputDamaged(sentence)  # whoever reads it raw takes it for what the task wrote
        if log_size(path) is not None:
            return StreamingResponse(_pieces(yard, path), media_type="application/octet-stream")
    if task_now(yard.loop, job.id, number).state not in (State.PENDING, State.STARTING):
        return Response(b"", media_type="application/octet-stream")  # an empty stream has no file
    raise NotFound(f"task {task or 0} of job {job.number} has written nothing yet")


async def _pieces(yard: Yard, path: Path) -> AsyncIterator[bytes]:
    """What is there at the start, without a Content-Length: the file may grow or shrink meanwhile."""
    with yard.lifetime.request(), open_log(path) as file:
        left = file.seek(0, 2)
        file.seek(0)
        while piece := await asyncio.to_thread(file.read, min(left, CHUNK_BYTES)):
            left -= len(piece)
            yield piece
