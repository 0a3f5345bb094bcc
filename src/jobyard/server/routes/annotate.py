"""POST /jobs/{selector}/annotations: store annotations of another program with a job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.server.commands import annotate
from jobyard.server.declarations import answers, takes
from jobyard.server.rights import caller_of
from jobyard.server.routes.answers import Selector, changed_job
from jobyard.wire.requests import AnnotateJob
from jobyard.wire.views import JobView

router = APIRouter()


@router.post("/jobs/{selector}/annotations")
@answers(JobView)
async def annotate_job(
    request: Request, selector: Selector, asked: Annotated[AnnotateJob, takes(AnnotateJob)]
) -> Response:
    return await changed_job(request, annotate(selector, asked.annotations, caller_of(request).name))
