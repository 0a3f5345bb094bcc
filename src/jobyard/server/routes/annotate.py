"""POST /jobs/{selector}/annotations: store annotations of another program with a job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.server.commands import annotate
from jobyard.server.declarations import answers, takes
from jobyard.server.queries import shown_job
from jobyard.server.rights import caller_of
from jobyard.server.routes.shared import Selector, answer, yard_of
from jobyard.wire.requests import AnnotateJob
from jobyard.wire.views import JobView

router = APIRouter()


@router.post("/jobs/{selector}/annotations")
@answers(JobView)
async def annotate_job(
    request: Request, selector: Selector, asked: Annotated[AnnotateJob, takes(AnnotateJob)]
) -> Response:
    yard = yard_of(request)
    with yard.lifetime.request():
        job_id = await yard.loop.ask(annotate(selector, asked.annotations, caller_of(request).name))
        return answer(shown_job(yard.loop, job_id))
