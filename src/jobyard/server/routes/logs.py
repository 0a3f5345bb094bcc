"""GET /jobs/{selector}/logs: what tasks wrote, as a resumable stream or as raw bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import FileResponse

from jobyard.errors import NotFound, UserError
from jobyard.model.job import State
from jobyard.model.task import AttemptId
from jobyard.server.logs import STREAMS, LogStream, log_path
from jobyard.server.logs import Request as LogRequest
from jobyard.server.routes.shared import event, event_stream, selected, yard_of
from jobyard.wire.views import LogChunk

router = APIRouter()


def _streams(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or any(name not in STREAMS for name in names):
        raise UserError(f"stream {text!r}: choose out, err or out,err")
    return names


@router.get("/jobs/{selector}/logs")
async def stream_logs(
    request: Request,
    selector: str,
    task: str = "",
    attempt: int | None = None,
    stream: str = "out,err",
    follow: bool = False,
    tail: int | None = None,
    last_event_id: str = Header(""),
) -> Response:
    yard = yard_of(request)
    if tail is not None and tail < 0:
        raise UserError(f"tail {tail}: must be 0 or more")
    wanted = LogRequest(selected(yard, selector), task, attempt, _streams(stream), tail)
    logs = LogStream(yard.loop, wanted, follow=follow, cursor=last_event_id)

    async def messages() -> AsyncIterator[str]:
        async for chunk in logs.chunks():
            yield event("log", chunk, logs.cursor())
        # A server that leaves ends its streams as well; this one ended because all is said.
        yield event("log", LogChunk("", 0, "out", "", final=True), logs.cursor())

    return event_stream(yard, messages())


@router.get("/jobs/{selector}/logs/raw")
async def raw_log(
    request: Request, selector: str, task: str = "", attempt: int | None = None, stream: str = "out"
) -> Response:
    yard = yard_of(request)
    job = selected(yard, selector)
    if not task and job.spec.size > 1:
        raise UserError(f"job {job.id} has {job.spec.size} tasks; name one with task=")
    wanted = LogRequest(job, task or job.spec.label_of(0), attempt, _streams(stream)[:1], None)
    assert wanted.task is not None
    for number in wanted.attempts_of(wanted.task):
        path = log_path(yard.loop, AttemptId(job.id, wanted.task, number), wanted.streams[0])
        if path.exists():
            return FileResponse(path, media_type="application/octet-stream")
    if job.task(wanted.task).state not in (State.PENDING, State.STARTING):
        return Response(b"", media_type="application/octet-stream")  # of a silent stream nothing came from elsewhere
    raise NotFound(f"task {task or 0} of job {job.id} has written nothing yet")
