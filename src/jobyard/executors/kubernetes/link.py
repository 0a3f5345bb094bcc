"""Link to a cluster: is its API server connected, does it answer, and since when is it away?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from jobyard.backoff import Backoff
from jobyard.errors import UserError
from jobyard.executors.kubernetes.rights import check_place, service_account
from jobyard.kubernetes.api import Api
from jobyard.model.events import Event, NodeWentAway
from jobyard.model.node import ClusterConfig

READY_SECONDS = 15.0
AWAY_SECONDS = 3.0  # a restarted API server is back by then, and that need not be reported
BACKOFF = Backoff(1.0, 10.0)


class ClusterLink:
    """`tell` hears that it went away; `returned` is called when it is back after that."""

    def __init__(
        self, config: ClusterConfig, tell: Callable[[Sequence[Event]], None], returned: Callable[[], None]
    ) -> None:
        self._config = config
        self._tell = tell
        self._returned = returned
        self.api: Api | None = None
        self.account = ""  # the service account that we are there
        self.problem = ""
        self.is_away = False
        self._ready = asyncio.Event()  # it is connected
        self._going_away: asyncio.TimerHandle | None = None
        self._failures = 0  # since it was last connected

    @property
    def is_up(self) -> bool:
        return self._ready.is_set()

    async def connect(self) -> Api:
        """From here on it may be asked; once all of it is watched, it is `back`. Raises ExecutorError or UserError."""
        self.api = api = await Api.connect(self._config)
        await check_place(api, self._config)
        self.account = await service_account(api)
        return api

    async def disconnect(self) -> None:
        self._ready.clear()
        if self.api is not None:
            with suppress(Exception):
                await self.api.close()
            self.api = None

    async def pause(self) -> None:
        """Before it is connected again, longer each time."""
        await asyncio.sleep(BACKOFF.pause(self._failures))
        self._failures += 1

    async def ready(self) -> Api:
        """A server that has just come back is about to be connected: waits for that. Raises UserError otherwise."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if self.problem else READY_SECONDS):
                await self._ready.wait()
        if self.api is None or not self._ready.is_set():
            raise UserError(f"cluster {self._config.id} cannot be used: {self.problem or 'it does not answer'}")
        return self.api

    def fail(self, problem: str) -> None:
        """If it does not come back soon, nothing new is sent there."""
        self.problem = problem
        if self._going_away is None and not self.is_away:
            self._going_away = asyncio.get_running_loop().call_later(AWAY_SECONDS, self._go_away)

    def _go_away(self) -> None:
        self._going_away, self.is_away = None, True
        self._ready.clear()
        self._tell([NodeWentAway(self._config.id, time.time(), self.problem)])

    def back(self) -> None:
        self._failures = 0
        if self._going_away is not None:
            self._going_away.cancel()
            self._going_away = None
        self.problem = ""
        self._ready.set()
        if self.is_away:
            self.is_away = False
            self._returned()
