"""POST /jobs/{selector}/retry: run failed and cancelled tasks once more."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.server.commands import retry
from jobyard.server.declarations import answers, takes
from jobyard.server.queries import shown_job, submitted_job
from jobyard.server.rights import caller_of
from jobyard.server.routes.shared import Selector, answer, yard_of
from jobyard.wire.requests import RetryJob
from jobyard.wire.views import JobView

router = APIRouter()


@router.post("/jobs/{selector}/retry")
@answers(JobView)
async def retry_job(request: Request, selector: Selector, asked: Annotated[RetryJob, takes(RetryJob)]) -> Response:
    yard = yard_of(request)
    with yard.lifetime.request():
        yard.environments.check_kept(submitted_job(yard.loop, selector))
        job_id = await yard.loop.ask(retry(selector, asked, caller_of(request).name))
        return answer(shown_job(yard.loop, job_id))
