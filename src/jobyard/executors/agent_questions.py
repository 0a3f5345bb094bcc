"""Questions to an agent: what was it asked, and what does it answer?"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from jobyard.executors.agent_link import AgentLink

PIECES_MOST = 20  # of one answer: two hundred thousand names


class AgentQuestions:
    """Over one link. The next message of the kind that answers is taken for the answer, for all who wait for it.

    It may come in pieces: all but the last have `more`.
    """

    def __init__(self, link: AgentLink) -> None:
        self._link = link
        self._waiting: defaultdict[str, list[asyncio.Future[Mapping[str, Any]]]] = defaultdict(list)
        self._pieces: dict[str, list[Mapping[str, Any]]] = {}

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
            if not self._waiting[answer]:
                self._pieces.pop(answer, None)

    def answered(self, message: Mapping[str, Any], *lists: str) -> None:
        """`lists` are those that go on from piece to piece."""
        kind = message["ev"]
        if not self._waiting.get(kind):
            return
        pieces = [*self._pieces.pop(kind, ()), message]
        if message.get("more") and len(pieces) < PIECES_MOST:
            self._pieces[kind] = pieces
            return
        whole = {**message, **{name: [each for piece in pieces for each in piece[name]] for name in lists}}
        for waiting in self._waiting.pop(kind):
            if not waiting.done():
                waiting.set_result(whole)
