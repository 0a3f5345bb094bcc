"""Lease of a machine: for how long is what runs there believed to run on without a link, and what is said then?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from jobyard.executors.agent_link import WELCOME_SECONDS
from jobyard.executors.protocol import YardView
from jobyard.model.events import Event, NodeLost, NodeWentAway


class Lease:
    """Of one machine. An agent on our own disk has none: its records are found again, however late."""

    def __init__(self, node: str, seconds: float | None, tell: Callable[[list[Event]], None]) -> None:
        self._node = node
        self._seconds = seconds
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None
        self.is_lost = False  # it was given up: what it said before that does not count any more

    def begin(self, problem: str) -> None:
        """There is no link. Safe to repeat: it runs from the first time."""
        if self._seconds is None or self._timer is not None:
            return
        self._tell([NodeWentAway(self._node, time.time(), problem)])
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self.give_up)

    def end(self) -> None:
        """The agent answers: the lease must not run out while we reconcile."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def give_up(self) -> None:
        """The node is lost; also said once more to a yard that has forgotten it."""
        self.is_lost = True
        message = f"node {self._node} has not answered for {self._seconds:g} s"
        self._tell([NodeLost(self._node, time.time(), message)])

    async def forgotten(self, yard: YardView) -> None:
        """Returns when the yard has heard that the node was lost: what it gave up must not be named as live."""
        async with asyncio.timeout(WELCOME_SECONDS):
            while self.is_lost and yard.live_attempts(self._node):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def regain(self) -> None:
        """What the machine says from now on counts."""
        self.is_lost = False
