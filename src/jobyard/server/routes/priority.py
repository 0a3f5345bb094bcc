"""POST /jobs/{selector}/priority: let a job go earlier or later."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from jobyard.server.commands import change_priority
from jobyard.server.routes.shared import answer, body_of, selected, view_of, yard_of
from jobyard.wire.requests import ChangePriority

router = APIRouter()


@router.post("/jobs/{selector}/priority")
async def prioritise_job(request: Request, selector: str) -> Response:
    yard = yard_of(request)
    asked = await body_of(ChangePriority, request)
    with yard.lifetime.request():
        job_id = await yard.loop.ask(change_priority(selector, asked.priority))
        return answer(view_of(yard, selected(yard, job_id)))
