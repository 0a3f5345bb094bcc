"""POST /jobs/{selector}/cancel: stop a job, or some of its tasks."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.server.commands import cancel
from jobyard.server.declarations import answers, takes
from jobyard.server.rights import caller_of
from jobyard.server.routes.answers import Selector, changed_job
from jobyard.wire.requests import CancelJob
from jobyard.wire.views import JobView

router = APIRouter()


@router.post("/jobs/{selector}/cancel")
@answers(JobView)
async def cancel_job(request: Request, selector: Selector, asked: Annotated[CancelJob, takes(CancelJob)]) -> Response:
    return await changed_job(request, cancel(selector, asked, caller_of(request).name))
