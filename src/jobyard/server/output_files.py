"""Output files: who writes what a task has written to where `--output` and `--error` say? The server, as tasks end.

What a task writes before its end, `output_growing.py` adds. The server reads the journal, on from the row that it wrote
down last, and so makes up for the time without a server. A file that cannot be written is noted, told to whoever looks
at the job, and tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from jobyard.engine.concerns import jobs_of
from jobyard.engine.job_record import JobRecord
from jobyard.model.events import AttemptsFinished, ClusterRemoved, Event, NodeLost, NodeRemoved
from jobyard.model.output_pattern import DISCARD, TaskOutput, expand
from jobyard.model.task import AttemptId
from jobyard.server.endings import has_ended_with
from jobyard.server.logs import log_path
from jobyard.server.loop import YardLoop
from jobyard.server.output_growing import GrowingOutput
from jobyard.server.output_note import OutputNote
from jobyard.server.output_threads import OutputThreads, Work
from jobyard.server.output_writing import write_output

log = logging.getLogger(__name__)

WAIT_SECONDS = 30.0  # the end of a job is told without its files after that
LATE = "the files of its output are still being written; `yard logs` has it"
SLOW = "its directory is slow to answer"
AGAIN_SECONDS = 1.0  # until what failed is tried again; twice as long each time
AGAIN_MOST_SECONDS = 300.0
AT_ONCE = 200  # files that are tried again, before those of tasks that end now have their turn
ROWS_BETWEEN = 1000  # that bring nothing, until the row is written down
NAMED_MOST = 5  # ranges of tasks, where files are missing


_Task = tuple[str, int]


@dataclass
class _Begun:
    """Files of a task that are slow."""

    works: set[Work]
    failure: str  # of the others
    others_wait: bool  # their directory is not asked before it has answered


class OutputFiles:
    """Of one yard. Writing a file again is harmless: it has the same content, and appears whole."""

    def __init__(self, loop: YardLoop, directory: Path) -> None:
        self._loop = loop
        self._note = OutputNote(directory, loop.seq)
        self._moved = asyncio.Event()
        self._failed = asyncio.Event()  # a file could not be written, or the note
        self._freed = asyncio.Event()  # a directory that was slow has its file
        self._begun: dict[_Task, _Begun] = {}
        self._threads = OutputThreads(self._take_late)
        self._growing = GrowingOutput(loop, self._threads, _growing_targets)
        self._whole: set[str] = set()  # jobs that have ended, and of whose tasks none was passed over
        loop.keep_rows_after(lambda: self._note.saved_row)

    async def run(self) -> None:
        """Until cancelled."""
        beside = [asyncio.create_task(self._try_again())]
        try:
            while self._loop.read_only:  # jobs may be missing of which rows are there
                await self._loop.feed.change()
            self._save()
            self._growing.begin()
            beside.append(asyncio.create_task(self._growing.run()))
            if self._note.missing:
                self._failed.set()
            while True:
                try:
                    await self._follow()
                except Exception:  # a bug of ours must not keep the files of all other jobs back
                    log.exception("output files")
                    await asyncio.sleep(AGAIN_SECONDS)
        finally:
            for task in beside:
                task.cancel()
            if not self._loop.read_only:
                self._save()

    async def written(self, job_id: str) -> str:
        """Returns once the files are there of all tasks that have ended by now; at once where there are none.

        For people: which are not there, as `missing`; also where it takes too long.
        """
        job = self._loop.state.jobs.get(job_id)
        if job is None or not _has_files(job) or self._loop.read_only:
            return ""
        row = await self._reached([job_id])
        return self.missing(job_id) or (LATE if self._note.row < row else "")

    async def all_written(self, jobs: Iterable[str]) -> None:
        """The same for several jobs, which are removed then: what they wrote goes."""
        known = self._loop.state.jobs
        if wanted := [job for job in jobs if job in known and _has_files(known[job])]:
            await self._reached(wanted)

    async def _reached(self, jobs: Sequence[str]) -> int:
        """The row of now, once it was taken and nothing of these jobs is slow, or after a while."""
        await self._loop.journalled()
        row = self._loop.seq
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                while self._note.row < row or any(self._is_slow(job) for job in jobs):
                    await self._moved.wait()
        return row

    def _is_slow(self, job: str) -> bool:
        known = self._note.missing.get(job)
        return known is not None and len(known.slow) > 0

    def missing(self, job_id: str, task: int | None = None) -> str:
        """For people: which files could not be written, and why; empty where all could. `task`: of this one alone."""
        job, known = self._loop.state.jobs.get(job_id), self._note.missing.get(job_id)
        if job is None or known is None or not (why := known.why(task)):
            return ""
        whose = f"task{'s' if len(known) > 1 else ''} {_named(job, known.tasks.ranges())}"
        if task is not None or job.spec.size == 1:
            whose = "the task"
        return f"the output of {whose} is not in its file ({why}); it is tried again, and `yard logs` has it"

    # -- as tasks end --------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Until it is cut off, because it is slower than the yard."""
        subscription = self._loop.feed.subscribe()
        try:
            while rows := await self._loop.read_journal(self._note.row, past_damage=True):
                for row, events in rows:
                    await self._take(row, events)
            while not subscription.is_cut:
                row, events = await subscription.get()
                if not subscription.is_cut:  # otherwise rows before this one were dropped
                    await self._take(row, events)
        finally:
            self._loop.feed.unsubscribe(subscription)

    async def _take(self, row: int, events: Sequence[Event]) -> None:
        if row <= self._note.row:
            return
        copies = self._copies_of_all(events)
        await self._write(copies)
        self._note.row = row
        if copies or row - self._note.saved_row >= ROWS_BETWEEN:
            self._save()
        self._growing.take(events)
        self._tell_moved()

    def _tell_moved(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def _copies_of_all(self, events: Sequence[Event]) -> list[Work]:
        """Each file once. A bug of ours at one event must not keep the files of all others back."""
        found: dict[Path, Work] = {}
        for event in events:
            try:
                found |= {copy.target: copy for copy in self._copies(event)}
            except Exception:
                log.exception("output files of %s", type(event).__name__)
        return list(found.values())

    def _copies(self, event: Event) -> Iterator[Work]:
        """For tasks that are not tried again."""
        if isinstance(event, AttemptsFinished):
            for item in event.items:
                job = self._loop.state.jobs.get(item.attempt.job)
                if job is not None and _has_files(job) and has_ended_with(job, item):
                    yield from self._copies_of(job, item.attempt)
        for job in self._jobs_of(event):
            if _has_files(job):
                yield from self._copies_of_cancelled(job)

    def _jobs_of(self, event: Event) -> Iterator[JobRecord]:
        """Those that may have ended with it."""
        known = self._loop.state.jobs
        if isinstance(event, NodeLost | NodeRemoved | ClusterRemoved):
            yield from [job for job in known.values() if (job.times.finished_at or 0.0) >= event.at]
        else:
            yield from (known[job] for job in jobs_of(self._loop.state, event) or () if job in known)

    def _copies_of_cancelled(self, job: JobRecord) -> Iterator[Work]:
        """Once the job has ended, of tasks that waited for another attempt, or whose machine was given up: what they
        had written by then. No attempt of theirs has ended with them."""
        if not job.is_final:
            self._whole.discard(job.id)
        elif job.id not in self._whole:
            self._whole.add(job.id)
            for number in job.tasks.cancelled_after_a_try():
                yield from self._copies_of(job, AttemptId(job.id, number, job.task(number).attempt))

    def _copies_of(self, job: JobRecord, attempt: AttemptId) -> Iterator[Work]:
        out, err = (log_path(self._loop, attempt, stream) for stream in ("out", "err"))
        targets = target_paths(job, attempt.task)
        if targets.out is not None:
            yield _work(attempt, (out,) if job.spec.staging.error else (out, err), targets.out)
        if targets.err is not None:
            yield _work(attempt, (err,), targets.err)

    # -- writing -------------------------------------------------------------------------------------------------------

    async def _write(self, works: Sequence[Work]) -> None:
        """What cannot be written is noted; so is what is slow, until it is there."""
        if not works:
            return
        refused = set(await self._threads.carry_out(works))
        tasks: dict[_Task, list[Work]] = {}
        for work in works:
            if work.whose is not None:
                tasks.setdefault(work.whose, []).append(work)
        for task, own in tasks.items():
            failure = next((work.failure for work in own if work.failure), "")
            late = [work for work in own if work.failure is None]
            if begun := [work for work in late if work not in refused]:
                self._begun[task] = _Begun(set(begun), failure, others_wait=len(late) > len(begun))
            self._put(task, f"{SLOW}: {late[0].target.parent}" if late else failure, is_slow=bool(late))

    def _take_late(self, works: Sequence[Work]) -> None:
        """What was slow is done."""
        for work in works:
            if work.whose is not None and (begun := self._begun.get(work.whose)) is not None:
                begun.works.discard(work)
                begun.failure = begun.failure or work.failure or ""
                if not begun.works:
                    del self._begun[work.whose]
                    waits = begun.others_wait and not begun.failure
                    self._put(work.whose, SLOW if waits else begun.failure, is_slow=waits)
        self._save()
        self._freed.set()
        self._tell_moved()

    def _put(self, task: _Task, why: str, *, is_slow: bool = False) -> None:
        job, number = task
        if why and job not in self._note.missing:
            log.error("job %s: output cannot be written (%s); `yard logs` has it", job, why)
        if why or job in self._note.missing:
            self._note.put(job, number, why, is_slow=is_slow)
        if why:
            self._failed.set()

    async def _try_again(self) -> None:
        """What could not be written, while it is known and no newer attempt has taken its place."""
        seconds = AGAIN_SECONDS
        while True:
            await self._failed.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._freed.wait()
            self._freed.clear()
            before = list(self._note.all_missing())
            try:
                await self._write_again(before)
            except Exception:  # the next time is later
                log.exception("output files")
            self._tell_moved()  # whoever waits for what was slow
            after = list(self._note.all_missing())
            if self._save() and not after:
                self._failed.clear()
            seconds = min(2 * seconds, AGAIN_MOST_SECONDS) if len(after) >= len(before) else AGAIN_SECONDS

    async def _write_again(self, tasks: Sequence[tuple[str, int]]) -> None:
        for begin in range(0, len(tasks), AT_ONCE):
            some = tasks[begin : begin + AT_ONCE]
            await self._write([copy for job, task in some for copy in self._copies_again(job, task)])

    def _copies_again(self, job_id: str, number: int) -> Iterator[Work]:
        if (job_id, number) in self._begun:
            return
        job = self._loop.state.jobs.get(job_id)
        is_there = job is not None and number < job.spec.size
        if job is None or not is_there or not (task := job.task(number)).state.is_final or not task.attempt:
            self._note.put(job_id, number, "")
            return
        yield from self._copies_of(job, AttemptId(job_id, number, task.attempt))

    def _save(self) -> bool:
        """On a full disk the rows are kept, and read once more by the next server."""
        try:
            self._note.save()
        except OSError:
            self._failed.set()
            return False
        return True


class Targets(NamedTuple):
    """None: nobody asked for a file."""

    out: Path | None
    err: Path | None


def target_paths(job: JobRecord, number: int) -> Targets:
    """Where the output of this task goes once it has ended."""
    spec, node = job.spec, job.task(number).node
    names = TaskOutput(job.number, spec.label_of(number), spec.name, node, spec.submitter.user)
    out, err = (
        Path(expand(pattern, names)) if pattern not in ("", DISCARD) else None
        for pattern in (spec.staging.output, spec.staging.error)
    )
    return Targets(out, err)


def _has_files(job: JobRecord) -> bool:
    return bool(job.spec.staging.output or job.spec.staging.error)


def _growing_targets(job: JobRecord, number: int) -> Iterator[tuple[str, Path]]:
    """Which stream begins each file of a task. Without --error the task has both in one, in its order."""
    targets = target_paths(job, number)
    if targets.out is not None:
        yield "out", targets.out
    if targets.err is not None:
        yield "err", targets.err


def _work(attempt: AttemptId, sources: Sequence[Path], target: Path) -> Work:
    return Work(target, partial(write_output, sources, target), (attempt.job, attempt.task))


def _named(job: JobRecord, ranges: Iterator[tuple[int, int]]) -> str:
    def name(first: int, last: int) -> str:
        begin, end = job.spec.label_of(first), job.spec.label_of(last)
        return begin if first == last else f"{begin} to {end}"

    named = [name(first, last) for first, last in islice(ranges, NAMED_MOST)]
    return ", ".join(named) + (", and others" if next(ranges, None) is not None else "")
