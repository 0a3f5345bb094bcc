"""POST /jobs/{selector}/yield: preempt a job: stop it at its next checkpoint, and let it wait again."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from jobyard.server.declarations import answers
from jobyard.server.rights import caller_of
from jobyard.server.routes.answers import Selector, changed_job
from jobyard.server.training_commands import yield_job
from jobyard.wire.views import JobView

router = APIRouter()


@router.post("/jobs/{selector}/yield")
@answers(JobView)
async def stop_at_checkpoint(request: Request, selector: Selector) -> Response:
    return await changed_job(request, yield_job(selector, caller_of(request).name))
