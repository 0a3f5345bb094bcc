"""GET /events: every journalled event, from any point on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from jobyard.model.codec import encode
from jobyard.model.events import Event, JobSubmitted
from jobyard.server.declarations import EventStream, answers
from jobyard.server.routes.answers import COUNT_MOST, event, event_stream, row_after, yard_of
from jobyard.server.views import shown

router = APIRouter()


@router.get("/events")
@answers(EventStream())
async def stream_events(
    request: Request,
    since: Annotated[int, Query(ge=0, le=COUNT_MOST)] = 0,
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    yard = yard_of(request)
    after = row_after(last_event_id, since)

    async def messages() -> AsyncGenerator[str, None]:
        subscription = yard.loop.feed.subscribe()
        last = after
        try:
            while rows := await yard.loop.read_journal(last):
                for seq, batch in rows:
                    for text in await asyncio.to_thread(_messages, seq, batch):
                        yield text
                    last = seq
            while not subscription.is_cut:
                seq, batch = await subscription.get()
                if seq > last:
                    for text in await asyncio.to_thread(_messages, seq, batch):
                        yield text
        finally:
            yard.loop.feed.unsubscribe(subscription)

    return event_stream(yard, messages())


def _messages(seq: int, batch: Sequence[Event]) -> list[str]:
    """In a thread: a job of a million lines is one event, and nobody should wait while it is written out."""
    return [event(type(item).__name__, encode(without_secrets(item)), str(seq)) for item in batch]


def without_secrets(item: Event) -> Event:
    """An event as others may see it: the submitting shell's environment stays behind, secrets are named only."""
    if not isinstance(item, JobSubmitted):
        return item
    spec = item.spec
    groups = tuple(replace(group, env={n: shown(n, v) for n, v in group.env.items()}) for group in spec.groups)
    env = {name: shown(name, value) for name, value in spec.env.items()}
    return replace(item, spec=replace(spec.with_shell({}), env=env, groups=groups), key="")
