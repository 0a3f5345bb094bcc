"""GET /jobs/{selector}/why: why it waits, in words."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from jobyard.server.routes.shared import answer, selected, yard_of
from jobyard.server.views import why_view

router = APIRouter()


@router.get("/jobs/{selector}/why")
async def explain_job(request: Request, selector: str) -> Response:
    yard = yard_of(request)
    with yard.lifetime.request():
        return answer(why_view(yard.loop.state, selected(yard, selector)))
