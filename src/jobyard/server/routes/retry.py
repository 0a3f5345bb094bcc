"""POST /jobs/{selector}/retry: run failed and cancelled tasks once more."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.server.commands import retry
from jobyard.server.declarations import answers, takes
from jobyard.server.queries import submitted_job
from jobyard.server.rights import caller_of
from jobyard.server.routes.answers import Selector, changed_job, yard_of
from jobyard.wire.requests import RetryJob
from jobyard.wire.views import JobView

router = APIRouter()


@router.post("/jobs/{selector}/retry")
@answers(JobView)
async def retry_job(request: Request, selector: Selector, asked: Annotated[RetryJob, takes(RetryJob)]) -> Response:
    yard = yard_of(request)
    yard.environments.check_kept(submitted_job(yard.loop, selector))
    return await changed_job(request, retry(selector, asked, caller_of(request).name))
