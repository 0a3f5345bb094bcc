"""The loop: observe, record, decide, act. One task owns the state: no locks. The journal comes before any act."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy.exc import DatabaseError

from jobyard.agent import faults
from jobyard.engine import wants
from jobyard.engine.job_record import JobRecord
from jobyard.engine.training import resumes_at, tells_of_checkpoints, yield_seconds
from jobyard.engine.yard_state import YardState
from jobyard.errors import Bug, Unwritable, YardError
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import Executor, JobFacts, LiveAttempt, SubmittedJob
from jobyard.model.effects import Effect
from jobyard.model.events import Event
from jobyard.model.job import State
from jobyard.model.node import NodeState, place_of
from jobyard.model.task import AttemptId, Slot, Task
from jobyard.server.journal import Journal
from jobyard.server.news import News
from jobyard.server.snapshots import Snapshots

log = logging.getLogger(__name__)
T = TypeVar("T")

# A command looks at the state and answers with the events that it makes and the result; it raises UserError otherwise.
Command = Callable[[YardState, float], tuple[Sequence[Event], T]]

TICK_SECONDS = 0.5
SNAPSHOT_EVERY_ROWS = 5000
JOURNAL_ROWS_AT_ONCE = 500


@dataclass
class _Asked:
    command: Command[Any]
    answer: asyncio.Future[Any]


class YardLoop:
    """Drives one YardState. `ask` runs a command through the loop; it returns when the journal has it on disk."""

    def __init__(self, journal: Journal, snapshots: Snapshots) -> None:
        self._journal = journal
        self._snapshots = snapshots
        self._inbox: asyncio.Queue[_Asked | Sequence[Event]] = asyncio.Queue()
        self._writer = ThreadPoolExecutor(1, "journal")
        self._subscribers: set[News] = set()
        self._executors: dict[Executor, list[asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()  # set: what memory holds is on disk
        self._settled.set()
        self._is_finishing = False
        self.mirror: Mirror | None = None  # where the output of other machines is
        self.seq, self.state = snapshots.restore(journal)
        self._snapshot_seq = self.seq

    # -- for executors: YardView -------------------------------------------------------------------------------------

    def job(self, job_id: str) -> SubmittedJob:
        record = self.state.jobs[job_id]
        return SubmittedJob(record.id, record.number, record.spec)

    def live_attempts(self, node: str) -> Sequence[LiveAttempt]:
        return [
            self._live(job, task, record.slot)
            for job, record in self.state.slots.values()
            if node in (record.slot.placement.node, place_of(record.slot.placement.node))
            for number in sorted(record.tasks)
            for task in (job.tasks[number],)
        ]

    def _live(self, job: JobRecord, task: Task, slot: Slot) -> LiveAttempt:
        attempt = AttemptId(job.id, task.number, task.attempt)
        live = LiveAttempt(
            attempt, slot, task.state is State.STOPPING, unit=task.unit, is_running=bool(task.started_at)
        )
        if not task.is_yielding:
            return live
        seconds = yield_seconds(job, self.state.trainings.profile_of(job))
        at_once = not tells_of_checkpoints(job, task.number)
        return live._replace(is_yielding=True, yield_seconds=seconds, at_once=at_once)

    def live_of(self, job_id: str) -> Sequence[LiveAttempt]:
        job = self.state.jobs.get(job_id)
        slots = job.slots.values() if job else ()
        found = [self._live(job, job.tasks[number], record.slot) for record in slots for number in record.tasks if job]
        return sorted(found, key=lambda live: live.attempt)

    def node_of(self, attempt: AttemptId) -> str | None:
        job = self.state.jobs.get(attempt.job)
        if job is None or not (0 <= attempt.task < job.spec.size or job.spec.elastic):
            return None
        task = job.tasks.get(attempt.task)
        if task is None or not task.state.is_active or attempt.number < task.attempt:
            return ""
        return task.node if attempt.number == task.attempt else None

    def facts(self, job_id: str) -> JobFacts:
        job = self.state.jobs.get(job_id)
        if job is None or job.is_final:
            return JobFacts(is_over=True, is_stopping=job is None or job.stop is not None)
        latest = job.task(0).attempt
        return JobFacts(False, job.stop is not None, job.is_fresh, len(job.slots), len(job.pending), latest)

    def nodes_of(self, cluster: str) -> Sequence[str]:
        nodes = wants.nodes_of(self.state, cluster)
        return [node.id for node in nodes if node.state is not NodeState.DOWN]

    def is_ended(self, job_id: str, task: int) -> bool:
        job = self.state.jobs.get(job_id)
        return job is None or job.task(task).state.is_final

    def resumes_at(self, attempt: AttemptId, node: str) -> int | None:
        job = self.state.jobs.get(attempt.job)  # None: a trial
        return resumes_at(job, attempt.task, node) if job else None

    def gang_addresses(self, job_id: str) -> Sequence[str]:
        job = self.state.jobs.get(job_id)  # None: a trial
        nodes = [job.task(rank).node for rank in range(job.spec.size)] if job else []
        if len(set(nodes)) < 2:
            return ()
        status = {each.node: each for each in (executor.status() for executor in self._executors)}
        seen = [each for node in dict.fromkeys(nodes) if (each := status.get(node))]
        ours = next((each.sees_us_as for each in seen if each.sees_us_as), "")
        return [(status[node].address if node in status else "") or ours for node in nodes]

    async def settled(self) -> None:
        """Returns when everything that the state holds is on disk; true until the caller waits again."""
        while not self._settled.is_set():
            await self._settled.wait()

    # -- for routes ----------------------------------------------------------------------------------------------------

    async def ask(self, command: Command[T]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._inbox.put_nowait(_Asked(command, answer))
        return await answer

    def subscribe(self) -> News:
        """Every journalled batch from now on, until `unsubscribe`; who does not keep up is cut."""
        news = News()
        self._subscribers.add(news)
        return news

    def unsubscribe(self, news: News) -> None:
        self._subscribers.discard(news)

    async def change(self) -> None:
        """Returns after the next change of anything."""
        await self._changed.wait()

    async def moment(self) -> None:
        """Returns after the next change, or soon: links come and go without one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await self.change()

    async def has_node(self, seconds: float) -> bool:
        """Whether a node is connected; waits for the first one for a while, as after a start."""
        deadline = time.monotonic() + seconds
        while not any(executor.status().is_connected and self._knows(executor) for executor in self._executors):
            if time.monotonic() > deadline:
                return bool(self.state.nodes)
            await self.moment()
        return True

    def _knows(self, executor: Executor) -> bool:
        return any(place_of(node) == executor.status().node for node in self.state.nodes)

    async def has_joined(self, node: str, seconds: float) -> bool:
        """Whether this node, or any of this cluster, is up; waits a while for it."""
        deadline = time.monotonic() + seconds
        while not self._is_up(node):
            if time.monotonic() > deadline:
                return False
            await self.moment()
        return True

    def _is_up(self, place: str) -> bool:
        known = self.state.nodes.get(place)
        of_place = [known] if known else [node for name, node in self.state.nodes.items() if place_of(name) == place]
        return any(node.state not in (NodeState.AWAY, NodeState.DOWN) for node in of_place)

    async def read_journal(self, after: int) -> list[tuple[int, list[Event]]]:
        """The next rows after a number; none at the end. Not in the writer's thread: nobody's commit waits for it."""
        return await asyncio.to_thread(lambda: list(islice(self._journal.read(after), JOURNAL_ROWS_AT_ONCE)))

    @property
    def executors(self) -> Sequence[Executor]:
        return list(self._executors)

    @property
    def is_busy(self) -> bool:
        return bool(self.state.unfinished)

    # -- running -------------------------------------------------------------------------------------------------------

    def add(self, executor: Executor) -> None:
        node = executor.status().node
        self._executors[executor] = [
            asyncio.create_task(executor.run(), name=f"executor of {node}"),
            asyncio.create_task(self._observe(executor), name=f"observe {node}"),
        ]

    def remove(self, node: str) -> None:
        """Let an executor go; nothing where there is none of that node."""
        if executor := self.executor_of(node):
            executor.dismiss()
            for task in self._executors.pop(executor):
                task.cancel()

    async def _observe(self, executor: Executor) -> None:
        async for events in executor.observations():
            self._inbox.put_nowait(events)

    async def run(self) -> None:
        """Until `finish`. A round: take all that is waiting, apply it, write it down, then act on it."""
        while not self._is_finishing:
            batch = await self._take()
            self._settled.clear()
            answers: list[tuple[_Asked, Any]] = []
            try:
                events, effects, answers = self._apply(batch, time.time())
                if events:
                    # Before the commit: who is acknowledged must not depend on our life any more.
                    if self.is_busy:
                        self._announce()
                    await self._record(events)
            except (DatabaseError, OSError) as error:
                cause = getattr(error, "orig", error)
                log.error("the journal cannot be written: %s", cause)
                sentence = f"the yard cannot write its journal ({cause}); free some disk space and try again"
                await self._recover(Unwritable(sentence), answers)
                continue
            except Exception as error:  # a bug of ours: what it left half done must not stay
                log.exception("a round failed")
                sentence = f"the server failed ({type(error).__name__}: {error}); its log has the details"
                await self._recover(Bug(sentence), [(item, None) for item in batch if isinstance(item, _Asked)])
                continue
            for asked, result in answers:
                if not asked.answer.done():
                    asked.answer.set_result(result)
            self._act(effects)
            self._announce()
            self._settled.set()
            self._publish(events)

    def report(self, events: Sequence[Event]) -> None:
        """Events that no executor sees, like a machine that is known no longer."""
        self._inbox.put_nowait(events)

    def finish(self) -> None:
        """Let `run` return after its round. Never cancel it: between applying and writing, memory is ahead of disk."""
        self._is_finishing = True
        self._inbox.put_nowait(())

    def _announce(self) -> None:
        for executor in self._executors:
            executor.announce(self.is_busy)

    async def _take(self) -> list[_Asked | Sequence[Event]]:
        try:
            first = await asyncio.wait_for(self._inbox.get(), TICK_SECONDS)
        except TimeoutError:
            return []  # deadlines and stuck slots
        batch = [first]
        while not self._inbox.empty():
            batch.append(self._inbox.get_nowait())
        return batch

    def _apply(
        self, batch: Iterable[_Asked | Sequence[Event]], now: float
    ) -> tuple[list[Event], list[Effect], list[tuple[_Asked, Any]]]:
        events: list[Event] = []
        effects: list[Effect] = []
        answers: list[tuple[_Asked, Any]] = []

        def apply(happened: Iterable[Event]) -> None:
            for event in happened:
                effects.extend(self.state.handle(event))
                if not event.ephemeral:
                    events.append(event)

        for item in batch:
            if not isinstance(item, _Asked):
                apply(item)
                continue
            try:
                happened, result = item.command(self.state, now)
            except YardError as error:
                if not item.answer.done():
                    item.answer.set_exception(error)
                continue
            apply(happened)  # what fails here is a bug, and is not the asker's alone
            answers.append((item, result))
        apply(self.state.decide(now))
        effects.extend(self.state.withdrawals(now))
        return events, effects, answers

    async def _record(self, events: list[Event]) -> None:
        faults.point("server-committing")
        now = time.time()
        self.seq = await self._write(lambda: self._journal.append(events, now))
        faults.point("server-committed")
        if self.seq - self._snapshot_seq >= SNAPSHOT_EVERY_ROWS:
            self.save_snapshot()

    async def _write(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)

    async def _recover(self, error: YardError, answers: list[tuple[_Asked, Any]]) -> None:
        """What memory holds is not what is on disk: go back to that, and tell those who asked."""
        try:
            # First of all: until then everybody would see jobs that are not there.
            self.seq, self.state = await self._write(lambda: self._snapshots.restore(self._journal))
        finally:
            for asked, _ in answers:
                if not asked.answer.done():
                    asked.answer.set_exception(error)
        await asyncio.sleep(1)
        # Observations come again with the reconnection; who asked meanwhile gets an answer of his own.
        waiting = [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]
        for item in waiting:
            if isinstance(item, _Asked):
                self._inbox.put_nowait(item)
        for executor in self._executors:
            executor.reconnect()
        self._settled.set()

    def _act(self, effects: Sequence[Effect]) -> None:
        by_place: defaultdict[str, list[Effect]] = defaultdict(list)
        for effect in effects:
            by_place[place_of(effect.node)].append(effect)
        for executor in self._executors:
            if own := by_place.get(executor.status().node):
                executor.perform(own)

    def _publish(self, events: list[Event]) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        if events:
            for news in list(self._subscribers):
                news.offer(self.seq, events)
                if news.is_cut:
                    self.unsubscribe(news)

    def executor_of(self, node: str) -> Executor | None:
        """That of a machine, of a cluster, or of the cluster that a node belongs to."""
        place = place_of(node)
        return next((executor for executor in self._executors if executor.status().node == place), None)

    def save_snapshot(self) -> None:
        self._snapshots.save(self.seq, self.state)
        self._snapshot_seq = self.seq

    async def close(self) -> None:
        if not self.is_busy:
            for executor in self._executors:
                executor.dismiss()
            await asyncio.sleep(0)  # let it go out
        tasks = {task for own in self._executors.values() for task in own}
        while tasks:
            for task in tasks:
                task.cancel()
            # Again, where a library took the cancellation for its own: Python 3.11's wait_for does.
            _, tasks = await asyncio.wait(tasks, timeout=1.0)
        self._writer.shutdown()
