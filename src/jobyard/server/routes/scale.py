"""POST /jobs/{selector}/scale: give an elastic job another size."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.server.declarations import answers, takes
from jobyard.server.queries import shown_job
from jobyard.server.rights import caller_of
from jobyard.server.routes.shared import Selector, answer, yard_of
from jobyard.server.training_commands import scale_job
from jobyard.wire.requests import ScaleJob
from jobyard.wire.views import JobView

router = APIRouter()


@router.post("/jobs/{selector}/scale")
@answers(JobView)
async def resize_job(request: Request, selector: Selector, asked: Annotated[ScaleJob, takes(ScaleJob)]) -> Response:
    yard = yard_of(request)
    with yard.lifetime.request():
        job_id = await yard.loop.ask(scale_job(selector, asked, caller_of(request).name))
        return answer(shown_job(yard.loop, job_id))
