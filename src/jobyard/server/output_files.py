"""Output files: who writes what a task has written to where `--output` and `--error` say? The server, as tasks end.

It reads the journal, on from the row that it wrote down last, and so makes up for the time without a server. A file
that cannot be written is noted, told to whoever looks at the job, and tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from jobyard.engine.concerns import jobs_of
from jobyard.engine.job_record import JobRecord
from jobyard.model.events import AttemptsFinished, ClusterRemoved, Event, NodeLost, NodeRemoved
from jobyard.model.output_pattern import DISCARD, TaskOutput, expand
from jobyard.model.task import AttemptId
from jobyard.server.endings import has_ended_with
from jobyard.server.logs import log_path
from jobyard.server.loop import YardLoop
from jobyard.server.output_note import OutputNote
from jobyard.server.output_writing import write_output

log = logging.getLogger(__name__)

WAIT_SECONDS = 30.0  # the end of a job is told without its files after that
LATE = "the files of its output are still being written; `yard logs` has it"
AGAIN_SECONDS = 1.0  # until what failed is tried again; twice as long each time
AGAIN_MOST_SECONDS = 300.0
AT_ONCE = 200  # files that are tried again, before those of tasks that end now have their turn
ROWS_BETWEEN = 1000  # that bring nothing, until the row is written down
NAMED_MOST = 5  # ranges of tasks, where files are missing


_Failures = dict[tuple[str, int], str]  # why, for the job and the task of which a file could not be written


class _Copy(NamedTuple):
    job: str
    task: int
    sources: Sequence[Path]  # one after another
    target: Path


class OutputFiles:
    """Of one yard. Writing a file again is harmless: it has the same content, and appears whole."""

    def __init__(self, loop: YardLoop, directory: Path) -> None:
        self._loop = loop
        self._note = OutputNote(directory, loop.seq)
        self._moved = asyncio.Event()
        self._failed = asyncio.Event()  # a file could not be written, or the note
        self._one_at_a_time = asyncio.Lock()
        self._whole: set[str] = set()  # jobs that have ended, and of whose tasks none was passed over
        loop.keep_rows_after(lambda: self._note.saved_row)

    async def run(self) -> None:
        """Until cancelled."""
        again = asyncio.create_task(self._try_again())
        try:
            while self._loop.read_only:  # jobs may be missing of which rows are there
                await self._loop.feed.change()
            self._save()
            if self._note.missing:
                self._failed.set()
            while True:
                try:
                    await self._follow()
                except Exception:  # a bug of ours must not keep the files of all other jobs back
                    log.exception("output files")
                    await asyncio.sleep(AGAIN_SECONDS)
        finally:
            again.cancel()
            if not self._loop.read_only:
                self._save()

    async def written(self, job_id: str) -> str:
        """Returns once the files are there of all tasks that have ended by now; at once where there are none.

        For people: which are not there, as `missing`; also where it takes too long.
        """
        job = self._loop.state.jobs.get(job_id)
        if job is None or not _has_files(job) or self._loop.read_only:
            return ""
        await self._loop.journalled()
        row = self._loop.seq
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                while self._note.row < row:
                    await self._moved.wait()
        return self.missing(job_id) or (LATE if self._note.row < row else "")

    async def all_written(self, jobs: Iterable[str]) -> None:
        """The same for several jobs, which are removed then: what they wrote goes."""
        known = self._loop.state.jobs
        if (one := next((job for job in jobs if job in known and _has_files(known[job])), None)) is not None:
            await self.written(one)

    def missing(self, job_id: str, task: int | None = None) -> str:
        """For people: which files could not be written, and why; empty where all could. `task`: of this one alone."""
        job, known = self._loop.state.jobs.get(job_id), self._note.missing.get(job_id)
        if job is None or known is None or (task is not None and task not in known.tasks):
            return ""
        whose = f"task{'s' if len(known.tasks) > 1 else ''} {_named(job, known.tasks.ranges())}"
        if task is not None or job.spec.size == 1:
            whose = "the task"
        return f"the output of {whose} is not in its file ({known.why}); it is tried again, and `yard logs` has it"

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
        self._moved.set()
        self._moved = asyncio.Event()

    def _copies_of_all(self, events: Sequence[Event]) -> list[_Copy]:
        """Each file once. A bug of ours at one event must not keep the files of all others back."""
        found: dict[Path, _Copy] = {}
        for event in events:
            try:
                found |= {copy.target: copy for copy in self._copies(event)}
            except Exception:
                log.exception("output files of %s", type(event).__name__)
        return list(found.values())

    def _copies(self, event: Event) -> Iterator[_Copy]:
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

    def _copies_of_cancelled(self, job: JobRecord) -> Iterator[_Copy]:
        """Once the job has ended, of tasks that waited for another attempt, or whose machine was given up: what they
        had written by then. No attempt of theirs has ended with them."""
        if not job.is_final:
            self._whole.discard(job.id)
        elif job.id not in self._whole:
            self._whole.add(job.id)
            for number in job.tasks.cancelled_after_a_try():
                yield from self._copies_of(job, AttemptId(job.id, number, job.task(number).attempt))

    def _copies_of(self, job: JobRecord, attempt: AttemptId) -> Iterator[_Copy]:
        out, err = (log_path(self._loop, attempt, stream) for stream in ("out", "err"))
        targets = target_paths(job, attempt.task)
        if targets.out is not None:
            yield _Copy(job.id, attempt.task, (out,) if job.spec.staging.error else (out, err), targets.out)
        if targets.err is not None:
            yield _Copy(job.id, attempt.task, (err,), targets.err)

    # -- writing -------------------------------------------------------------------------------------------------------

    async def _write(self, copies: Sequence[_Copy]) -> None:
        """What cannot be written is noted."""
        if not copies:
            return
        async with self._one_at_a_time:
            failures = await _beside(copies)
        for copy in copies:
            if (copy.job, copy.task) not in failures and copy.job in self._note.missing:
                self._note.put(copy.job, copy.task, "")
        for (job, task), why in failures.items():
            if job not in self._note.missing:
                log.error("job %s: output cannot be written (%s); `yard logs` has it", job, why)
            self._note.put(job, task, why)
        if failures:
            self._failed.set()

    async def _try_again(self) -> None:
        """What could not be written, while it is known and no newer attempt has taken its place."""
        seconds = AGAIN_SECONDS
        while True:
            await self._failed.wait()
            await asyncio.sleep(seconds)
            before = list(self._note.all_missing())
            try:
                await self._write_again(before)
            except Exception:  # the next time is later
                log.exception("output files")
            after = list(self._note.all_missing())
            if self._save() and not after:
                self._failed.clear()
            seconds = min(2 * seconds, AGAIN_MOST_SECONDS) if len(after) >= len(before) else AGAIN_SECONDS

    async def _write_again(self, tasks: Sequence[tuple[str, int]]) -> None:
        for begin in range(0, len(tasks), AT_ONCE):
            some = tasks[begin : begin + AT_ONCE]
            await self._write([copy for job, task in some for copy in self._copies_again(job, task)])

    def _copies_again(self, job_id: str, number: int) -> Iterator[_Copy]:
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


async def _beside(copies: Sequence[_Copy]) -> _Failures:
    """In a daemon thread, for which no server waits that stops: a file system that hangs may never answer."""
    done: Future[_Failures] = Future()
    done.set_running_or_notify_cancel()
    Thread(target=lambda: done.set_result(_write_all(copies)), name="output files", daemon=True).start()
    return await asyncio.wrap_future(done)


def _write_all(copies: Sequence[_Copy]) -> _Failures:
    """Raises nothing."""
    failures = {}
    for copy in copies:
        try:
            write_output(copy.sources, copy.target)
        except OSError as error:
            failures[copy.job, copy.task] = f"{copy.target}: {error.strerror or error}"
        except Exception as error:  # a name that no file can have, or a bug of ours
            log.exception("output files of job %s", copy.job)
            failures[copy.job, copy.task] = f"{copy.target!s:.200}: {error}"
    return failures


def _named(job: JobRecord, ranges: Iterator[tuple[int, int]]) -> str:
    def name(first: int, last: int) -> str:
        begin, end = job.spec.label_of(first), job.spec.label_of(last)
        return begin if first == last else f"{begin} to {end}"

    named = [name(first, last) for first, last in islice(ranges, NAMED_MOST)]
    return ", ".join(named) + (", and others" if next(ranges, None) is not None else "")
