"""Recording: how is what happened written down and read back, so that the loop waits for its commits alone?"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from jobyard.agent_protocol import faults
from jobyard.engine.job_record import JobRecord
from jobyard.model.events import Event
from jobyard.server.compaction import compact
from jobyard.server.damages import Restored
from jobyard.server.error_counts import ErrorCounts
from jobyard.server.history import History, row_of
from jobyard.server.journal import Journal
from jobyard.server.snapshots import Snapshots

T = TypeVar("T")

SNAPSHOT_EVERY_ROWS = 5000
JOURNAL_ROWS_AT_ONCE = 500


class Recording:
    """The journal, with the snapshot file and the history that follow from it. One thread writes the journal."""

    def __init__(self, journal: Journal, snapshots: Snapshots, history: History, errors: ErrorCounts) -> None:
        self._journal = journal
        self._snapshots = snapshots
        self._history = history
        self._errors = errors
        self._writer = ThreadPoolExecutor(1, "journal")
        self._saver = ThreadPoolExecutor(1, "snapshot")
        self.read_to: Callable[[], int] = lambda: sys.maxsize  # rows after it are not deleted
        self._snapshot_seq = 0  # the row at which a snapshot was last begun, or the server
        self._snapshot_jobs = 0  # that it had: with more of them one costs more, and is made after more rows

    def begin(self) -> Restored:
        """What is on disk, when the server starts."""
        restored = self._snapshots.restore(self._journal)
        self._snapshot_seq, self._snapshot_jobs = restored.seq, len(restored.state.jobs)
        return restored

    async def restore(self) -> Restored:
        """What is on disk, after whatever waits to be written."""
        return await self._write(lambda: self._snapshots.restore(self._journal))

    async def append(self, events: Sequence[Event], jobs: set[str] | None) -> int:
        """The number of the row that they are in. Raises DatabaseError or OSError: then nothing is on disk."""
        faults.point("server-committing")
        now = time.time()
        seq = await self._write(lambda: self._journal.append(events, now, jobs))
        faults.point("server-committed")
        if seq - self._snapshot_seq >= max(SNAPSHOT_EVERY_ROWS, self._snapshot_jobs):
            self._snapshot_seq = seq
            self._saver.submit(self._renew_snapshot)
        return seq

    async def remember(self, jobs: Iterable[JobRecord]) -> None:
        """A line of each in the history, before the yard forgets them."""
        rows = [row_of(job) for job in jobs]
        await self._write(lambda: self._history.write(rows))

    async def remembered(self, jobs: Collection[str]) -> set[str]:
        """Those of them that have a line in the history."""
        return await asyncio.to_thread(self._history.knows, jobs)

    async def accept(self, row: int, who: str) -> None:
        """Go on without a row that is damaged."""
        await self._write(lambda: self._journal.accept(row, who, time.time()))

    async def read(self, after: int, past_damage: bool) -> list[tuple[int, list[Event]]]:
        """The next rows after a number; none at the end. Not in the writer's thread: nobody's commit waits for it."""
        return await asyncio.to_thread(
            lambda: list(islice(self._journal.read(after, past_damage=past_damage), JOURNAL_ROWS_AT_ONCE))
        )

    def save_snapshot(self, restored: Restored) -> None:
        self._snapshots.save(restored)

    def close(self) -> None:
        self._saver.shutdown()  # first this one: its work may still need the writer
        self._writer.shutdown()

    async def _write(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)

    def _renew_snapshot(self) -> None:
        """In a thread of its own: neither a command nor a commit waits for it."""
        try:
            restored = self._snapshots.renew(self._journal)
            self._snapshot_jobs = len(restored.state.jobs)
            read_to = self.read_to()  # before the base is written: it only grows
            compact(self._journal, self._history, restored, lambda work: self._writer.submit(work).result(), read_to)
        except Exception as error:
            self._errors.note("snapshot", f"no snapshot or base was written ({error!r})", error)
