"""GET /jobs/{selector}/endings: how each task ended, as it ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from jobyard.server.declarations import EventStream, answers
from jobyard.server.endings import EndingStream
from jobyard.server.routes.answers import COUNT_MOST, Selector, event, event_stream, row_after, yard_of
from jobyard.wire.views import EndingView

router = APIRouter()


@router.get("/jobs/{selector}/endings")
@answers(EventStream(EndingView, has_end=True))
async def stream_endings(
    request: Request,
    selector: Selector,
    since: Annotated[int, Query(ge=0, le=COUNT_MOST)] = 0,
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """Until the job has ended, then `event: end`. The last ending of a row of the journal carries its number as id."""
    yard = yard_of(request)
    after = row_after(last_event_id, since)
    endings = EndingStream(yard.loop, selector, after)

    async def messages() -> AsyncGenerator[str, None]:
        async with aclosing(endings.batches()) as batches:
            async for seq, batch in batches:
                for view in batch[:-1]:
                    yield event("ended", view)
                yield event("ended", batch[-1], str(seq))
        yield event("cut" if endings.is_cut else "end", {})

    return event_stream(yard, messages())
