"""Sending of snapshots: how do the trees that jobs run in come to a machine that has a disk of its own?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from jobyard.errors import Rejected, Unavailable
from jobyard.executors.agent_link import BACKOFF, AgentLink, Transport
from jobyard.executors.protocol import YardView

TRIES = 8  # to send a tree, over some ten seconds: a disk may be freed meanwhile
log = logging.getLogger(__name__)


class SnapshotSending:
    """To one machine: each tree that its agent misses, once at a time, again after an error."""

    def __init__(
        self,
        node: str,
        snapshots: Path,
        transport: Transport,
        link: AgentLink,
        yard: YardView,
        reconcile: Callable[[], None],
    ) -> None:
        """`snapshots` has the trees, by their hashes; `reconcile` makes the agent ask again."""
        self._node = node
        self._snapshots = snapshots
        self._transport = transport
        self._link = link
        self._yard = yard
        self._reconcile = reconcile
        self._on_their_way: dict[str, asyncio.Task[None]] = {}

    def send(self, snapshot: str) -> None:
        """Never waits; nothing where it is on its way already, or no live attempt wants it."""
        jobs = (self._yard.job(item.attempt.job) for item in self._yard.live_attempts(self._node))
        wanted = {job.spec.staging.snapshot for job in jobs}
        if snapshot not in wanted:
            return  # of a job that ended meanwhile, or nothing of ours
        if snapshot not in self._on_their_way or self._on_their_way[snapshot].done():
            self._on_their_way[snapshot] = asyncio.create_task(self._bring(snapshot))

    def cancel(self) -> None:
        for task in self._on_their_way.values():
            task.cancel()

    async def _bring(self, snapshot: str) -> None:
        trouble = ""
        for failures in range(TRIES):
            try:
                await self._transport.send_snapshot(snapshot, self._snapshots / f"{snapshot}.tar")
                self._link.send({"op": "staged", "snapshot": snapshot})
                return
            except (Unavailable, Rejected, OSError) as error:
                self._link.problem = str(error)
                trouble = "" if isinstance(error, Unavailable) else self._link.problem
                log.warning("node %s: the tree cannot be sent: %s", self._node, error)
                await asyncio.sleep(BACKOFF.pause(failures))
        if trouble:  # a full disk, say: what waits for the tree fails, as anything that cannot start there
            self._link.send({"op": "staged", "snapshot": snapshot, "trouble": trouble})
        else:
            self._reconcile()
