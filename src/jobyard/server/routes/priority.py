"""POST /jobs/{selector}/priority: let a job go earlier or later."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.server.commands import change_priority
from jobyard.server.declarations import answers, takes
from jobyard.server.rights import caller_of
from jobyard.server.routes.answers import Selector, changed_job
from jobyard.wire.requests import ChangePriority
from jobyard.wire.views import JobView

router = APIRouter()


@router.post("/jobs/{selector}/priority")
@answers(JobView)
async def prioritise_job(
    request: Request, selector: Selector, asked: Annotated[ChangePriority, takes(ChangePriority)]
) -> Response:
    return await changed_job(request, change_priority(selector, asked.priority, caller_of(request).name))
