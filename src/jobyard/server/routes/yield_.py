"""POST /jobs/{selector}/yield: preempt a job: stop it at its next checkpoint, and let it wait again."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from jobyard.server.declarations import answers
from jobyard.server.queries import shown_job
from jobyard.server.rights import caller_of
from jobyard.server.routes.shared import Selector, answer, yard_of
from jobyard.server.training_commands import yield_job
from jobyard.wire.views import JobView

router = APIRouter()


@router.post("/jobs/{selector}/yield")
@answers(JobView)
async def stop_at_checkpoint(request: Request, selector: Selector) -> Response:
    yard = yard_of(request)
    with yard.lifetime.request():
        job_id = await yard.loop.ask(yield_job(selector, caller_of(request).name))
        return answer(shown_job(yard.loop, job_id))
