"""POST /jobs/{selector}/scale: give an elastic job another size."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.server.declarations import answers, takes
from jobyard.server.rights import caller_of
from jobyard.server.routes.answers import Selector, changed_job
from jobyard.server.training_commands import scale_job
from jobyard.wire.requests import ScaleJob
from jobyard.wire.views import JobView

router = APIRouter()


@router.post("/jobs/{selector}/scale")
@answers(JobView)
async def resize_job(request: Request, selector: Selector, asked: Annotated[ScaleJob, takes(ScaleJob)]) -> Response:
    return await changed_job(request, scale_job(selector, asked, caller_of(request).name))
