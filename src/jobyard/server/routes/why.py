"""GET /jobs/{selector}/why: why it waits, in words."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request, Response

from jobyard.executors.protocol import SubmittedJob
from jobyard.server.declarations import answers
from jobyard.server.queries import submitted_job, why
from jobyard.server.routes.answers import Label, Selector, answer, yard_of
from jobyard.server.yard import Yard
from jobyard.wire.views import WhyView

router = APIRouter()


@router.get("/jobs/{selector}/why")
@answers(WhyView)
async def explain_job(request: Request, selector: Selector, task: Label = "") -> Response:
    """`task`: of this one alone."""
    yard = yard_of(request)
    with yard.lifetime.request():
        job = submitted_job(yard.loop, selector)
        number = job.spec.number_of(task) if task else None
        view = why(yard.loop, job.id, number)
        missing = yard.output_files.missing(job.id, number)
        if missing:
            view = replace(view, sentences=(*view.sentences, missing))
        return answer(_with_problem(yard, job, view))


def _with_problem(yard: Yard, job: SubmittedJob, view: WhyView) -> WhyView:
    """A cluster that does not answer may know more about its jobs than the yard does."""
    executor = yard.loop.executor_of(job.spec.cluster) if job.spec.cluster and not view.state.is_final else None
    status = executor.status() if executor is not None else None
    if status is None or status.is_connected or not status.problem:
        return view
    told = f"cluster {job.spec.cluster} does not answer, and may know more about the job: {status.problem}"
    return replace(view, sentences=(*view.sentences, told))
