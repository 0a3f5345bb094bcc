"""POST /jobs/{selector}/cancel and /cancel: stop a job or some of its tasks, or many jobs in one step."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.server.commands import cancel, cancel_many
from jobyard.server.declarations import answers, takes
from jobyard.server.limits import VIEWS_AT_ONCE
from jobyard.server.queries import shown_jobs
from jobyard.server.rights import caller_of
from jobyard.server.routes.answers import Selector, answer, changed_job, yard_of
from jobyard.wire.requests import CancelJob, CancelJobs
from jobyard.wire.views import JobView

router = APIRouter()


@router.post("/jobs/{selector}/cancel")
@answers(JobView)
async def cancel_job(request: Request, selector: Selector, asked: Annotated[CancelJob, takes(CancelJob)]) -> Response:
    return await changed_job(request, cancel(selector, asked, caller_of(request).name))


@router.post("/cancel")
@answers(list[JobView])
async def cancel_jobs(request: Request, asked: Annotated[CancelJobs, takes(CancelJobs)]) -> Response:
    """All of them, or none where one is not known."""
    yard = yard_of(request)
    with yard.lifetime.request():
        jobs = await yard.loop.ask(cancel_many(asked, caller_of(request).name))
        views: list[JobView] = []
        for begin in range(0, len(jobs), VIEWS_AT_ONCE):
            views += shown_jobs(yard.loop, jobs[begin : begin + VIEWS_AT_ONCE])
            await asyncio.sleep(0)
        return await asyncio.to_thread(answer, views)
