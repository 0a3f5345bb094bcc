"""POST /jobs/{selector}/retry: run failed and cancelled tasks once more."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from jobyard.server.commands import retry
from jobyard.server.routes.shared import answer, body_of, selected, view_of, yard_of
from jobyard.wire.requests import RetryJob

router = APIRouter()


@router.post("/jobs/{selector}/retry")
async def retry_job(request: Request, selector: str) -> Response:
    yard = yard_of(request)
    asked = await body_of(RetryJob, request)
    with yard.lifetime.request():
        job_id = await yard.loop.ask(retry(selector, asked))
        return answer(view_of(yard, selected(yard, job_id)))
