"""Idle shutdown: when does a background server end? After an idle time, never while work or requests are pending."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOK_SECONDS = 0.5


class Lifetime:
    """Counts requests. `over` returns when the server should end: it was asked to, or has been idle for long enough."""

    def __init__(
        self,
        idle_seconds: float | None,
        is_busy: Callable[[], bool],
        is_reachable: Callable[[], bool] = lambda: True,
    ) -> None:
        self._idle_seconds = idle_seconds
        self._is_busy = is_busy
        self._is_reachable = is_reachable
        self._open_requests = 0
        self._last_use = time.monotonic()
        self._asked = asyncio.Event()

    @contextmanager
    def request(self) -> Iterator[None]:
        self._open_requests += 1
        try:
            yield
        finally:
            self._open_requests -= 1
            self._last_use = time.monotonic()

    def stop(self) -> None:
        self._asked.set()

    async def over(self) -> None:
        while True:
            try:
                await asyncio.wait_for(self._asked.wait(), LOOK_SECONDS)
                return
            except TimeoutError:
                pass
            if not self._is_reachable():
                return  # no client can reach us; the agent starts another server while work is pending
            if self._open_requests or self._is_busy():
                self._last_use = time.monotonic()
            elif self._idle_seconds is not None and time.monotonic() - self._last_use > self._idle_seconds:
                return
