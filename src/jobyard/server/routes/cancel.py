"""POST /jobs/{selector}/cancel: stop a job, or some of its tasks."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from jobyard.server.commands import cancel
from jobyard.server.routes.shared import answer, body_of, selected, view_of, yard_of
from jobyard.wire.requests import CancelJob

router = APIRouter()


@router.post("/jobs/{selector}/cancel")
async def cancel_job(request: Request, selector: str) -> Response:
    yard = yard_of(request)
    asked = await body_of(CancelJob, request)
    with yard.lifetime.request():
        job_id = await yard.loop.ask(cancel(selector, asked))
        return answer(view_of(yard, selected(yard, job_id)))
