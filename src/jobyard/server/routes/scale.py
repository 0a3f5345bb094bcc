"""POST /jobs/{selector}/scale: give an elastic job another size."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from jobyard.server.routes.shared import answer, body_of, selected, view_of, yard_of
from jobyard.server.training_commands import scale_job
from jobyard.wire.requests import ScaleJob

router = APIRouter()


@router.post("/jobs/{selector}/scale")
async def resize_job(request: Request, selector: str) -> Response:
    yard = yard_of(request)
    asked = await body_of(ScaleJob, request)
    with yard.lifetime.request():
        job_id = await yard.loop.ask(scale_job(selector, asked))
        return answer(view_of(yard, selected(yard, job_id)))
