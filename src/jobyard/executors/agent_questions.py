"""Questions to an agent: what was it asked, and what does it answer?"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from jobyard.executors.agent_link import AgentLink


class AgentQuestions:
    """Over one link. The next message of the kind that answers is taken for the answer, for all who wait for it."""

    def __init__(self, link: AgentLink) -> None:
        self._link = link
        self._waiting: defaultdict[str, list[asyncio.Future[Mapping[str, Any]]]] = defaultdict(list)

    async def ask(self, question: Mapping[str, Any], answer: str, seconds: float) -> Mapping[str, Any] | None:
        """None: there is no link, or no answer in time."""
        if not self._link.is_up:
            return None
        waiting: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[answer].append(waiting)
        self._link.send(question)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    return await waiting
            return None
        finally:
            with suppress(ValueError):
                self._waiting[answer].remove(waiting)

    def answered(self, message: Mapping[str, Any]) -> None:
        for waiting in self._waiting.pop(message["ev"], ()):
            if not waiting.done():
                waiting.set_result(message)
