"""Housekeeping: how do files of forgotten jobs go, here and on machines? What is stored is compared with what is known.

Nothing is remembered of what is still to be deleted. So it is safe to repeat, a server that dies in the middle leaves
nothing behind, and a machine that was away gets its turn when it is back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import CanForget
from jobyard.model.effects import Forget
from jobyard.server.loop import YardLoop
from jobyard.server.removing import forget
from jobyard.staging.pack import prune, store_of

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0  # is there a machine that was not looked at since it was connected?
EVERY_SECONDS = 3600.0  # also without a reason
AT_ONCE = 500  # jobs in one message to an agent


class Housekeeping:
    """Of one yard. `run` looks after each connection of a machine, and whenever something was forgotten."""

    def __init__(self, loop: YardLoop, directory: Path, mirror: Mirror) -> None:
        self._loop = loop
        self._store = store_of(directory)
        self._mirror = mirror
        self._wanted = asyncio.Event()
        self._seen: frozenset[tuple[str, int | None]] = frozenset()  # machines with the agents that were looked at

    async def remove(self, jobs: Sequence[str], by: str = "") -> tuple[str, ...]:
        """Forget those of these jobs that nothing needs, and say which; their files go soon after."""
        await self._loop.remember(jobs)  # first: it tells their files from those of jobs that this yard never had
        gone = await self._loop.ask(forget(jobs, by))
        if gone:
            self._wanted.set()
        return gone

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._something_to_do()
            try:
                await self.sweep()
            except Exception as error:  # the next look repeats it
                self._loop.count_error(
                    "housekeeping", f"files that nobody needs could not be removed ({error!r})", error
                )

    async def _something_to_do(self) -> None:
        until = time.monotonic() + EVERY_SECONDS
        while not self._wanted.is_set() and self._connected() <= self._seen and time.monotonic() < until:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wanted.wait()
            except TimeoutError:
                continue
        self._wanted.clear()
        self._seen = self._connected()

    def _connected(self) -> frozenset[tuple[str, int | None]]:
        statuses = (each.status() for each in self._loop.executors if isinstance(each, CanForget))
        return frozenset((status.node, status.pid) for status in statuses if status.is_connected)

    # -- files ---------------------------------------------------------------------------------------------------------

    async def sweep(self) -> None:
        """Remove what is stored of jobs that were forgotten. What this yard has never heard of is left alone."""
        if self._loop.read_only:
            return
        here = await asyncio.to_thread(self._mirror.jobs)
        gone = await self._loop.forgotten(here)
        await asyncio.to_thread(self._mirror.forget, gone)
        for executor in self._loop.executors:
            if isinstance(executor, CanForget):
                await self._sweep_machine(executor)
        if all(damage.is_accepted for damage in self._loop.damages):  # otherwise jobs may be missing that need them
            await self._sweep_here()

    async def _sweep_machine(self, executor: CanForget) -> None:
        stored = await executor.stored()
        if stored is None:
            return
        jobs = sorted(await self._loop.forgotten(stored.jobs))
        trees = self._unneeded(stored.snapshots)
        node = executor.status().node
        for begin in range(0, max(len(jobs), 1), AT_ONCE):
            some, trees = jobs[begin : begin + AT_ONCE], () if begin else trees
            if some or trees:
                executor.perform([Forget(node, tuple(some), trees)])

    async def _sweep_here(self) -> None:
        """Trees of files, and variables of shells, that belong to no job any more."""
        needed = self._trees()
        await asyncio.to_thread(prune, self._store, needed)
        if self._loop.environments is not None:
            self._loop.environments.sweep(self._loop.state, time.time(), orphans=True)

    def _unneeded(self, trees: Iterable[str]) -> tuple[str, ...]:
        if not all(damage.is_accepted for damage in self._loop.damages):
            return ()
        return tuple(sorted(set(trees) - self._trees()))

    def _trees(self) -> set[str]:
        return {job.spec.staging.snapshot for job in self._loop.state.jobs.values()}
