"""Ordered logs: what did the tasks write, one task after another? Each once it and all before it have ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from jobyard.model.task import AttemptId
from jobyard.server.logs import LogStream
from jobyard.wire.views import LogChunk

_AT_ONCE = 100  # tasks that are looked at before other requests have their turn


class OrderedLogStream(LogStream):
    """Goes on, as every stream of logs, where its cursor says. It ends when all tasks that were asked for have."""

    async def chunks(self) -> AsyncGenerator[LogChunk, None]:
        for number in self._request.asked():
            while not self._job_now().task(number).state.is_final:
                await self._loop.feed.change()
            for attempt in self._request.attempts_of(number, self._job_now()):
                key = AttemptId(self._request.job.id, number, attempt)
                await self._begin(key)
                for chunk in self._read(key, final=True):
                    yield chunk
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
