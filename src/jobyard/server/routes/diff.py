"""GET /jobs/{selector}/diff: which uncommitted changes did the tree have that a job's image was built from?"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from jobyard.errors import NotFound
from jobyard.server.declarations import Media, answers
from jobyard.server.queries import submitted_job
from jobyard.server.routes.answers import Selector, yard_of

router = APIRouter()


@router.get("/jobs/{selector}/diff")
@answers(Media("text/x-diff"))
async def get_diff(request: Request, selector: Selector) -> Response:
    yard = yard_of(request)
    with yard.lifetime.request():
        job = submitted_job(yard.loop, selector)
        if job.spec.container.git is None:
            raise NotFound(f"job {job.number} has no diff: its image was not built by `yard`")
        # Bytes, not JSON: a file of the tree need not be UTF-8.
        return Response(job.spec.container.git.diff.encode("utf-8", "surrogateescape"), media_type="text/x-diff")
