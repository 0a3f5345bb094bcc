"""The loop: observe, record, decide, act. One task owns the state: no locks. The journal comes before any act."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from sqlalchemy.exc import DatabaseError

from jobyard.engine.planner import Planner
from jobyard.errors import NotFound, Unwritable, YardError
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import Executor
from jobyard.model.events import Event, JobQuarantined
from jobyard.model.node import NodeState, place_of
from jobyard.server import rounds
from jobyard.server.damages import Damage, Restored, why_read_only
from jobyard.server.event_feed import EventFeed
from jobyard.server.history import History
from jobyard.server.ignored_events import IgnoredEvents
from jobyard.server.journal import Journal
from jobyard.server.recording import Recording
from jobyard.server.rounds import Asked, Command, Item
from jobyard.server.running_executors import RunningExecutors
from jobyard.server.snapshots import Snapshots
from jobyard.server.yard_view import StateView

log = logging.getLogger(__name__)
T = TypeVar("T")

TICK_SECONDS = 0.5


class YardLoop(StateView):
    """Drives one YardState. `ask` runs a command through the loop; it returns when the journal has it on disk."""

    seq: int  # of the last row of the journal
    damages: tuple[Damage, ...]  # rows of it that could not be replayed
    read_only: str  # why nothing can be asked of this yard, and the way out

    def __init__(self, journal: Journal, snapshots: Snapshots, history: History) -> None:
        super().__init__()
        self._recording = Recording(journal, snapshots, history, self.error_counts)
        self._inbox: asyncio.Queue[Item] = asyncio.Queue()
        self._executors = RunningExecutors(self._inbox.put_nowait, self.error_counts)
        self.feed = EventFeed()
        self._journalled = asyncio.Event()  # set: what memory holds is on disk
        self._journalled.set()
        self._is_finishing = False
        self._again: list[Item] = []  # of a round that was spoiled, to be taken up before anything else
        self._ignored = IgnoredEvents()
        self.mirror: Mirror | None = None  # where the output of other machines is
        self._take_up(self._recording.begin())
        for each in self.damages:
            self.count_error("journal", each.sentence)

    async def journalled(self) -> None:
        """Returns when everything that the state holds is on disk; true until the caller waits again."""
        while not self._journalled.is_set():
            await self._journalled.wait()

    # -- for routes ----------------------------------------------------------------------------------------------------

    async def ask(self, command: Command[T]) -> T:
        if self.read_only:
            raise Unwritable(self.read_only)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._inbox.put_nowait(Asked(command, answer))
        return await answer

    async def heard(self) -> None:
        """Returns when everything that executors have observed until now is part of the state."""
        if not self.read_only:
            await self.ask(lambda state, now: ([], None))

    async def has_node(self, seconds: float) -> bool:
        """Whether a node is connected; waits for the first one for a while, as after a start."""
        deadline = time.monotonic() + seconds
        while not any(executor.status().is_connected and self._knows(executor) for executor in self._executors):
            if self.read_only or time.monotonic() > deadline:
                return bool(self.state.places.nodes)
            await self.feed.moment()
        return True

    def _knows(self, executor: Executor) -> bool:
        return any(place_of(node) == executor.status().node for node in self.state.places.nodes)

    async def has_joined(self, node: str, seconds: float) -> bool:
        """Whether this node, or any of this cluster, is up; waits a while for it."""
        deadline = time.monotonic() + seconds
        while not self._is_up(node):
            if time.monotonic() > deadline:
                return False
            await self.feed.moment()
        return True

    def _is_up(self, place: str) -> bool:
        nodes = self.state.places.nodes
        known = nodes.get(place)
        if known and not ((executor := self.executor_of(place)) and executor.status().is_connected):
            return False  # what is known of this machine may be of a link that was let go
        of_place = [known] if known else [node for name, node in nodes.items() if place_of(name) == place]
        return any(node.state not in (NodeState.AWAY, NodeState.DOWN) for node in of_place)

    async def read_journal(self, after: int, *, past_damage: bool = False) -> list[tuple[int, list[Event]]]:
        """The next rows after a number; none at the end. Not in the writer's thread: nobody's commit waits for it."""
        return await self._recording.read(after, past_damage)

    def keep_rows_after(self, read_to: Callable[[], int]) -> None:
        """Whatever a start needs, rows stay in the journal that come after this one. It is asked from a thread."""
        self._recording.read_to = read_to

    async def remember(self, jobs: Iterable[str]) -> None:
        """Write a line of each of these jobs, which have ended, into the history, before they are forgotten."""
        await self._recording.remember([self.state.jobs[job] for job in jobs if job in self.state.jobs])

    async def forgotten(self, jobs: Iterable[str]) -> set[str]:
        """Those of them that were in this yard and are no more. What it has never heard of is not among them."""
        return await self._recording.remembered([job for job in jobs if job not in self.state.jobs])

    @property
    def executors(self) -> Sequence[Executor]:
        return list(self._executors)

    # -- running -------------------------------------------------------------------------------------------------------

    def add(self, executor: Executor) -> None:
        """Use it from now on; in a yard that can only be read, only to find what its attempts have written."""
        self._executors.add(executor)
        if not self.read_only:
            self._executors.start(executor)

    async def accept(self, row: int, who: str) -> None:
        """Go on without a row that is damaged. Raises NotFound where it is not."""
        if row not in [damage.row for damage in self.damages]:
            raise NotFound(f"row {row} of the journal is not damaged; `yard doctor` names those that are")
        await self._recording.accept(row, who)
        log.warning("%s goes on without row %d of the journal", who, row)
        was_read_only = self.read_only
        self.damages = tuple(each._replace(is_accepted=each.is_accepted or each.row == row) for each in self.damages)
        self.read_only = why_read_only(self.damages)
        if was_read_only and not self.read_only:
            await self._executors.restart()

    def remove(self, node: str) -> None:
        """Let an executor go; nothing where there is none of that node."""
        self._executors.remove(node)

    async def run(self) -> None:
        """Until `finish`. A round: take all that is waiting, apply it, write it down, then act on it."""
        while not self._is_finishing:
            batch = await self._take()
            if self.read_only:  # no executor is heard, and those who have asked already are told why
                for item in batch:
                    if isinstance(item, Asked):
                        item.refuse(Unwritable(self.read_only))
                continue
            self._journalled.clear()
            done = rounds.Round()
            try:
                done = rounds.run(self.planner, batch, time.time(), self._ignored, self.error_counts)
                if done.events:
                    # Before the commit: once a request is acknowledged, our death must not lose it.
                    if self.is_busy:
                        self._executors.announce(True)
                    self.seq = await self._recording.append(done.events, done.jobs)
            except rounds.Spoiled as spoiled:
                await self._set_aside(spoiled, batch)
                continue
            except (DatabaseError, OSError) as error:
                cause = getattr(error, "orig", error)
                log.error("the journal cannot be written: %s", cause)
                sentence = f"the yard cannot write its journal ({cause}); free some disk space and try again"
                await self._recover(Unwritable(sentence), [asked for asked, _ in done.answers])
                continue
            except Exception as error:  # a bug of ours: what it left half done must not stay
                self.count_error("round", f"a round failed ({error!r})", error)
                await self._recover(rounds.failed(error), [item for item in batch if isinstance(item, Asked)])
                continue
            for asked, result in done.answers:
                if not asked.answer.done():
                    asked.answer.set_result(result)
            self._executors.perform(done.effects)
            self._executors.announce(self.is_busy)
            self._journalled.set()
            self.feed.publish(self.seq, done.events)
            if done.ends_quarantine:
                self._reconcile()

    def report(self, events: Sequence[Event]) -> None:
        """Events that no executor sees: a machine was removed, say."""
        self._inbox.put_nowait(events)

    def finish(self) -> None:
        """Let `run` return after its round. Never cancel it: between applying and writing, memory is ahead of disk."""
        self._is_finishing = True
        self._inbox.put_nowait(())

    async def _take(self) -> list[Item]:
        if self._again:
            batch, self._again = self._again, []
            return batch
        try:
            first = await asyncio.wait_for(self._inbox.get(), TICK_SECONDS)
        except TimeoutError:
            return []  # deadlines and stuck slots
        batch = [first]
        while not self._inbox.empty():
            batch.append(self._inbox.get_nowait())
        return batch

    async def _set_aside(self, spoiled: rounds.Spoiled, batch: list[Item]) -> None:
        """One item broke the state: go back to what is on disk, and on without it. It hurts its asker or its jobs."""
        cause = spoiled.__cause__
        jobs = spoiled.jobs or frozenset()
        named = f" with job {', '.join(sorted(jobs))}" if jobs else ""
        error = cause if isinstance(cause, Exception) else None
        self.count_error("command" if spoiled.asked else "round", f"{spoiled} failed{named} ({cause!r})", error)
        asked = [item for item in batch if isinstance(item, Asked)]
        if spoiled.asked is None and not jobs and spoiled.event is None:  # the error cannot be blamed on anybody
            await self._recover(rounds.failed(cause), asked)
            return
        await self._restore()
        if spoiled.asked is not None:
            spoiled.asked.refuse(rounds.failed(cause))
        else:
            held = [job for job in sorted(jobs) if job in self.state.unfinished and job not in self.state.quarantined]
            # A quarantined job ignores observations. When it is cancelled, it needs all of them again.
            if spoiled.event is not None and (not held or isinstance(spoiled.event, JobQuarantined)):
                self._ignored.add(spoiled.event)
            now, sentence = time.time(), f"an error in the server concerned it ({type(cause).__name__}: {cause})"
            self._again.append([JobQuarantined(job, now, sentence) for job in held])
        self._again += [item for item in asked if not item.answer.done()]
        await asyncio.sleep(self._ignored.pause())
        self._reconcile()
        self._journalled.set()

    async def _restore(self) -> None:
        self._take_up(await self._recording.restore())
        if self.read_only:
            # They would end attempts that only a damaged row knew: to them these belong to nobody.
            self.count_error("journal", self.read_only)
            await self._executors.stop()

    def _take_up(self, restored: Restored) -> None:
        self.seq, state, self.damages = restored
        self.state, self.planner = state, Planner(state)
        self.read_only = why_read_only(self.damages)

    async def _recover(self, error: YardError, asked: Iterable[Asked]) -> None:
        """What memory holds is not what is on disk: go back to that, and tell those who asked."""
        try:
            # First of all: until then views would show jobs that are not in the journal.
            await self._restore()
        finally:
            for each in asked:
                each.refuse(error)
        await asyncio.sleep(1)
        self._reconcile()
        self._journalled.set()

    def _reconcile(self) -> None:
        """Drop observations that wait, and connect again: executors then report all that they see. Requests stay."""
        waiting = [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]
        for item in waiting:
            if isinstance(item, Asked):
                self._inbox.put_nowait(item)
        if not self.read_only:
            self._executors.reconnect()

    def executor_of(self, node: str) -> Executor | None:
        """That of a machine, of a cluster, or of the cluster that a node belongs to."""
        return self._executors.of(node)

    def save_snapshot(self) -> None:
        """When the server ends: then nobody waits for it."""
        self._recording.save_snapshot(Restored(self.seq, self.state, self.damages))

    async def close(self) -> None:
        if not self.is_busy:
            self._executors.dismiss()
            await asyncio.sleep(0)  # let it go out
        await self._executors.stop()
        self._recording.close()
