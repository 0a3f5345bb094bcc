"""Rate limit: how often may one client ask an API server? A token bucket."""

from __future__ import annotations

import asyncio
import time


class RateLimit:
    """So many requests per second, and at most so many at once after a pause."""

    def __init__(self, per_second: float, most: int) -> None:
        self._per_second, self._most = per_second, most
        self._left, self._at = float(most), time.monotonic()

    async def turn(self) -> None:
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._per_second)
        self._at = now
        self._left -= 1
        if self._left < 0:
            await asyncio.sleep(-self._left / self._per_second)
