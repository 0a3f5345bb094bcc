"""POST /gc: jobs that are too old, too many or too large leave the yard now, or are only named."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from jobyard.server.declarations import answers, takes
from jobyard.server.rights import admin_of
from jobyard.server.routes.answers import answer, yard_of
from jobyard.wire.kept import RemovalView
from jobyard.wire.requests import CollectGarbage

router = APIRouter()


@router.post("/gc")
@answers(RemovalView)
async def collect_garbage(request: Request, asked: Annotated[CollectGarbage, takes(CollectGarbage)]) -> Response:
    by = admin_of(request, "remove jobs of others")
    yard = yard_of(request)
    with yard.lifetime.request():
        return answer(RemovalView(await yard.housekeeping.collect(by.name, dry_run=asked.dry_run)))
