"""POST /remove: jobs that have ended leave the yard, with all that it keeps of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.server.declarations import answers, takes
from jobyard.server.rights import caller_of
from jobyard.server.routes.answers import answer, yard_of
from jobyard.wire.kept import RemovalView
from jobyard.wire.requests import RemoveJobs

router = APIRouter()


@router.post("/remove")
@answers(RemovalView)
async def remove_jobs(request: Request, asked: Annotated[RemoveJobs, takes(RemoveJobs)]) -> Response:
    """Answered when it is in the journal; the files go soon after, on machines that are away when they are back."""
    yard, caller = yard_of(request), caller_of(request)
    with yard.lifetime.request():
        return answer(RemovalView(await yard.housekeeping.remove_named(asked.jobs, caller)))
