"""Result collector: in which order is what another machine sends written, put in its place and reported?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import YardView
from jobyard.model.events import AttemptsFinished, Event
from jobyard.model.job import Reason
from jobyard.model.task import AttemptId

log = logging.getLogger(__name__)
CONFIRM_SECONDS = 0.1
MOST_WAITING = 16 << 20  # characters that are not on disk yet; then the machine has to wait


@dataclass(frozen=True, slots=True)
class RemoteFiles:
    """What a machine that does not share our disk needs: where its files go, and what to do when all are here."""

    mirror: Mirror
    snapshots: Path  # the trees that are sent along, by their hashes
    collect: Callable[[AttemptId], None]  # put an attempt's results where the user wants them; may take a while
    lease_seconds: float  # after so long without a link its attempts are given up


@dataclass(frozen=True, slots=True)
class _Ended:
    events: Sequence[Event]
    sizes: Mapping[AttemptId, Mapping[str, int]]  # of the streams of each that ended


class ResultCollector:
    """For one machine. Disks may be slow: a thread writes all that waits in one go, while more comes in."""

    def __init__(
        self,
        node: str,
        remote: RemoteFiles,
        yard: YardView,
        tell: Callable[[list[Event]], None],
        reconcile: Callable[[], None],
        is_lost: Callable[[], bool],
    ) -> None:
        """`tell` gets events once their attempts' results are collected; `reconcile` makes the machine send again.
        `is_lost`: the machine was given up, and what it said before that does not count any more."""
        self._node = node
        self._remote = remote
        self._yard = yard
        self._tell = tell
        self._reconcile = reconcile
        self._is_lost = is_lost
        self._queue: asyncio.Queue[dict[str, Any] | _Ended] = asyncio.Queue()
        self._waiting = 0
        self._has_room = asyncio.Event()
        self._placed: set[AttemptId] = set()  # reported to have ended, results collected
        self._confirming: asyncio.Task[None] | None = None

    def have(self, attempts: Iterable[AttemptId]) -> dict[str, dict[str, int]]:
        """How much of each stream is here already: the machine goes on from there."""
        return self._remote.mirror.have(attempts)

    def output(self, message: dict[str, Any]) -> None:
        """The next bytes of a stream."""
        self._waiting += len(message["data"])
        self._queue.put_nowait(message)

    def ended(self, events: Sequence[Event], finished: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """All that these attempts wrote has been sent."""
        sizes = {AttemptId.parse(name): seen.get("streams") or {} for name, seen in finished}
        self._queue.put_nowait(_Ended(events, sizes))

    async def room(self) -> None:
        """Returns when not too much waits to be written."""
        while self._waiting > MOST_WAITING:
            self._has_room.clear()
            await self._has_room.wait()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                batch = [await self._queue.get()]
                while not self._queue.empty():
                    batch.append(self._queue.get_nowait())
                await self._take(batch)
        finally:
            if self._confirming is not None:
                self._confirming.cancel()

    async def _take(self, batch: Sequence[dict[str, Any] | _Ended]) -> None:
        events = [event for item in batch if isinstance(item, _Ended) for event in item.events]
        own = self._own(events)
        trouble = await asyncio.to_thread(self._write, batch, own)
        self._waiting -= sum(len(item["data"]) for item in batch if isinstance(item, dict))
        self._has_room.set()
        if trouble:
            log.error("node %s: what it sent could not be stored: %s", self._node, trouble)
            self._reconcile()
            return
        if events:
            self._tell(events)
        if own and not self._is_lost():  # otherwise they were given up before their end was reported
            self._remote.mirror.told(own)
            self._placed |= own
            if self._confirming is None or self._confirming.done():
                self._confirming = asyncio.create_task(self._confirm())

    def _own(self, events: Sequence[Event]) -> set[AttemptId]:
        """Attempts whose results count. One that was given up, or ended with its machine, has a successor."""
        if not events:
            return set()
        live = self._live()
        ended = [item for event in events if isinstance(event, AttemptsFinished) for item in event.items]
        return {item.attempt for item in ended if item.attempt in live and item.outcome.reason is not Reason.NODE_LOST}

    def _live(self) -> set[AttemptId]:
        return {item.attempt for item in self._yard.live_attempts(self._node)}

    def _write(self, batch: Sequence[dict[str, Any] | _Ended], own: Collection[AttemptId]) -> str:
        """In a thread. What went wrong, in words: then nothing of the batch is told."""
        mirror = self._remote.mirror
        try:
            for item in batch:
                if isinstance(item, dict):
                    mirror.take(item)
                    continue
                for attempt, sizes in item.sizes.items():
                    if attempt in own:
                        if lack := mirror.lacks(attempt, sizes):
                            return f"{attempt}: {lack}"
                        self._collect(attempt)
        except (OSError, ValueError) as error:
            return str(error)
        return ""

    def _collect(self, attempt: AttemptId) -> None:
        try:
            self._remote.collect(attempt)
        except Exception:  # an attempt whose results cannot be placed has ended all the same
            log.exception("results of %s", attempt)

    async def _confirm(self) -> None:
        """Returns when the end of all attempts with collected results is on disk."""
        while self._placed:
            await asyncio.sleep(CONFIRM_SECONDS)
            await self._yard.journalled()
            live = self._live()
            self._remote.mirror.unmark(self._placed - live)
            self._placed &= live
