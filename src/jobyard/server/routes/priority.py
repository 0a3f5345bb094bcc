"""POST /jobs/{selector}/priority: let a job go earlier or later."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.server.commands import change_priority
from jobyard.server.declarations import answers, takes
from jobyard.server.queries import shown_job
from jobyard.server.rights import caller_of
from jobyard.server.routes.shared import Selector, answer, yard_of
from jobyard.wire.requests import ChangePriority
from jobyard.wire.views import JobView

router = APIRouter()


@router.post("/jobs/{selector}/priority")
@answers(JobView)
async def prioritise_job(
    request: Request, selector: Selector, asked: Annotated[ChangePriority, takes(ChangePriority)]
) -> Response:
    yard = yard_of(request)
    with yard.lifetime.request():
        job_id = await yard.loop.ask(change_priority(selector, asked.priority, caller_of(request).name))
        return answer(shown_job(yard.loop, job_id))
