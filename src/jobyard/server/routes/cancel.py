"""POST /jobs/{selector}/cancel: stop a job, or some of its tasks."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.server.commands import cancel
from jobyard.server.declarations import answers, takes
from jobyard.server.queries import shown_job
from jobyard.server.rights import caller_of
from jobyard.server.routes.shared import Selector, answer, yard_of
from jobyard.wire.requests import CancelJob
from jobyard.wire.views import JobView

router = APIRouter()


@router.post("/jobs/{selector}/cancel")
@answers(JobView)
async def cancel_job(request: Request, selector: Selector, asked: Annotated[CancelJob, takes(CancelJob)]) -> Response:
    yard = yard_of(request)
    with yard.lifetime.request():
        job_id = await yard.loop.ask(cancel(selector, asked, caller_of(request).name))
        return answer(shown_job(yard.loop, job_id))
