"""Task logs: where do the bytes of a job's tasks come from? Files of attempts, read as they grow, to their end."""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
import os
import stat
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from jobyard.engine.intervals import IntervalSet
from jobyard.engine.job_record import JobRecord
from jobyard.errors import NotFound, UserError
from jobyard.model.events import AttemptsFinished, AttemptsStarted, Event
from jobyard.model.job import State
from jobyard.model.task import AttemptId
from jobyard.model.task_ranges import task_ranges
from jobyard.server.event_feed import Subscription
from jobyard.server.finding import find_job
from jobyard.server.log_cursor import intervals_of, offset_of
from jobyard.server.log_tail import tail_offset
from jobyard.server.loop import YardLoop
from jobyard.wire.views import LogChunk

CHUNK_BYTES = 1 << 16
LOOK_SECONDS = 0.1
LOOKS_AT_ONCE = 50  # attempts whose files are looked at before other requests have their turn: some 2 ms
STREAMS = ("out", "err")


def log_paths(loop: YardLoop, attempt: AttemptId, stream: str) -> list[Path]:
    """Where the file may be: attempt ids are unique, so a file of that name is the right one. A machine may be gone."""
    paths = [Path(executor.log_path(attempt, stream)) for executor in loop.executors]
    if loop.mirror is not None:
        paths.append(loop.mirror.path(attempt, stream))
    return list(dict.fromkeys(paths))


def log_path(loop: YardLoop, attempt: AttemptId, stream: str) -> Path:
    return _first_there(log_paths(loop, attempt, stream))


def _first_there(paths: Sequence[Path]) -> Path:
    return next((path for path in paths if path.exists()), paths[0])


def open_log(path: Path) -> BinaryIO:
    """The file of a log, to read. Raises FileNotFoundError for what is no file.

    The task owns it: it may have put a FIFO or a link in its place, and opening that would wait for ever, or read
    a file that does not belong to the task.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise FileNotFoundError(error.errno, "no log", str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(f"{path} is no file")
    return os.fdopen(descriptor, "rb")


def tail_lines(loop: YardLoop, attempt: AttemptId, most: int = 8) -> tuple[str, ...]:
    """The last lines of an attempt: of its standard error, or of its output where that is empty."""
    for stream in ("err", "out"):
        data = _last_bytes(log_path(loop, attempt, stream), 4096)
        if lines := data.decode(errors="replace").splitlines()[-most:]:
            return tuple(line[:300] for line in lines)
    return ()


def last_line(loop: YardLoop, attempt: AttemptId) -> str:
    """What it wrote last, to whichever stream; of a progress bar that writes over itself, its newest state."""
    paths = [log_path(loop, attempt, stream) for stream in STREAMS]
    lines = (
        _last_bytes(max(paths, key=_written_at), 1024).decode(errors="replace").splitlines()
    )  # a carriage return ends one too
    return next((line[:300] for line in reversed(lines) if line.strip()), "")


def _written_at(path: Path) -> int:
    """0: there is nothing in it."""
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_mtime_ns if found.st_size else 0


def _last_bytes(path: Path, most: int) -> bytes:
    try:
        with open_log(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            return file.read()
    except OSError:
        return b""


class Reader:
    """Follows one file, whichever of `paths` it turns out to be: whole characters only, other bytes as surrogates."""

    def __init__(self, *paths: Path) -> None:
        self._paths = paths
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._read_to = 0

    async def skip_to_tail(self, lines: int) -> None:
        """Begin with the last lines of what is there by now."""
        with suppress(FileNotFoundError), open_log(_first_there(self._paths)) as file:
            self._read_to = await tail_offset(file, lines)

    @property
    def offset(self) -> int:
        """The bytes handed out so far: a character that is not complete yet does not count."""
        return self._read_to - len(self._decoder.getstate()[0])

    @offset.setter
    def offset(self, value: int) -> None:
        self._read_to = value
        self._decoder.reset()

    def read(self, *, final: bool = False) -> Iterator[str]:
        """What has come since the last call, in pieces."""
        try:
            with open_log(_first_there(self._paths)) as file:
                file.seek(self._read_to)
                while data := file.read(CHUNK_BYTES):
                    self._read_to += len(data)
                    if text := self._decoder.decode(data):
                        yield text
        except FileNotFoundError:
            return
        if final and (rest := self._decoder.decode(b"", final=True)):
            yield rest


class LogRequest:
    """Which logs of a job are wanted."""

    def __init__(
        self,
        job: JobRecord,
        tasks: str,
        attempt: int | None,
        streams: Sequence[str],
        tail: int | None,
        *,
        only_failed: bool = False,
    ) -> None:
        """`tasks` are words as in `3,7-9`; empty: all of the job."""
        self.job = job
        self.attempt = attempt
        self.streams = streams
        self.tail = tail
        self._asked = IntervalSet(task_ranges(job.spec, tasks)) if tasks else None
        self._states = [State.FAILED] if only_failed else [state for state in State if state is not State.PENDING]
        self._left = self.asked()  # tasks that `is_over` has not seen ended
        self._next_left = next(self._left, None)
        single = next(iter(self._asked)) if self._asked is not None and len(self._asked) == 1 else None
        newest = job.tasks.most_attempts if single is None else job.task(single).attempt
        if attempt is not None and not 1 <= attempt <= newest:
            whose = f"job {job.id} has" if single is None else f"task {tasks} of job {job.id} has"
            times = f"{newest} time{'s' if newest != 1 else ''}"
            raise NotFound(f"{whose} no attempt {attempt}; it was tried {times}")

    def has(self, number: int) -> bool:
        return self._asked is None or number in self._asked

    def attempts_of(self, number: int, job: JobRecord | None = None) -> list[int]:
        """`job` is the record to look in, where that of the request may have been replaced."""
        newest = (job or self.job).task(number).attempt
        if self.attempt is not None:
            return [self.attempt] if self.attempt <= newest else []
        return [newest] if newest else []

    def asked(self) -> Iterator[int]:
        """All tasks that were asked for, in order."""
        return iter(range(self.job.spec.size) if self._asked is None else self._asked)

    def numbers(self) -> Iterator[int]:
        """Of them those that were tried by now, in order; what changes while they are read does not matter."""
        tried = sorted(span for state in self._states for span in self.job.tasks.numbers_in(state))
        for first, last in tried:
            spans = [(first, last)] if self._asked is None else self._asked.first_within(first, last, last - first + 1)
            for low, high in spans:
                yield from range(low, high + 1)

    def is_over(self, job: JobRecord) -> bool:
        """Whether all that was asked for has ended. A task that has ended once is not looked at again."""
        while not job.is_final and self._next_left is not None and job.task(self._next_left).state.is_final:
            self._next_left = next(self._left, None)
        return job.is_final or self._next_left is None


def log_request(
    loop: YardLoop,
    selector: str,
    tasks: str,
    attempt: int | None,
    streams: Sequence[str],
    tail: int | None = None,
    *,
    only_failed: bool = False,
) -> LogRequest:
    """Raises NotFound or UserError where there is no such job, task or attempt."""
    return LogRequest(find_job(loop.state, selector), tasks, attempt, streams, tail, only_failed=only_failed)


class LogStream:
    """The logs of a job as one resumable stream: everything there is, and with `follow` everything there will be."""

    def __init__(self, loop: YardLoop, request: LogRequest, *, follow: bool, cursor: str = "") -> None:
        self._loop = loop
        self._request = request
        self._follow = follow
        self._tail = request.tail  # of what is there already; what begins later is shown whole
        self._looks = 0
        self.is_cut = False  # we were too slow: the client goes on from the cursor
        self._is_live = False  # what is read now was written since the last look
        self._open: dict[AttemptId, dict[str, Reader]] = {}
        self._done: defaultdict[int, IntervalSet] = defaultdict(IntervalSet)  # attempt number -> tasks read to the end
        self._left_at: dict[AttemptId, dict[str, int]] = {}  # where the cursor leaves attempts that are not open yet
        self._read_to: dict[AttemptId, str] = {}  # of each that is not done, as its piece of the cursor
        if cursor:
            self._resume(cursor)

    # -- cursors: where a client that comes back goes on ------------------------------------------------------------

    def cursor(self) -> str:
        """Joined of pieces that are made as attempts are read: ten thousand may run, and each chunk has a cursor."""
        done = json.dumps({str(attempt): list(tasks.ranges()) for attempt, tasks in self._done.items()})
        has_tail = json.dumps(self._tail is not None)
        return base64.urlsafe_b64encode(f"[{done},{{{','.join(self._read_to.values())}}},{has_tail}]".encode()).decode()

    def _resume(self, cursor: str) -> None:
        try:
            done, reading, has_tail = json.loads(base64.urlsafe_b64decode(cursor))
            if not has_tail:
                self._tail = None
            for attempt, ranges in done.items():
                self._done[int(attempt)] = intervals_of(ranges)
            for text, offsets in reading.items():
                key = AttemptId.parse(text)
                self._check_own(key)
                if not set(offsets) <= set(self._request.streams):
                    raise ValueError(text)
                self._left_at[key] = {name: offset_of(offset) for name, offset in offsets.items()}
                self._note(key, self._left_at[key])
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise UserError(f"log cursor {cursor[:40]!r} is not one of ours; leave it out to start over") from error

    def _check_own(self, key: AttemptId) -> None:
        """It comes from a client: it must not lead to files of other jobs, out of the yard, or to what never ran."""
        job = self._request.job
        if key.job != job.id or not 0 <= key.task < job.spec.size or not 1 <= key.number <= job.task(key.task).attempt:
            raise ValueError(str(key))

    def _note(self, key: AttemptId, offsets: Mapping[str, int]) -> None:
        """For the cursor. A header holds it: only what was read."""
        if any(offsets.values()):
            own = {name: offset for name, offset in offsets.items() if offset}
            self._read_to[key] = f"{json.dumps(str(key))}:{json.dumps(own, separators=(',', ':'))}"

    # -- reading ----------------------------------------------------------------------------------------------------

    async def chunks(self) -> AsyncGenerator[LogChunk, None]:
        job, request = self._request.job, self._request
        subscription = self._loop.feed.subscribe() if self._follow else None
        try:
            # 1. What is there already: ended attempts to their end, running ones stay open.
            for number in request.numbers():
                task = job.task(number)
                for attempt in request.attempts_of(number):
                    key = AttemptId(job.id, number, attempt)
                    runs = self._follow and task.attempt == attempt and task.state.is_active
                    await self._begin(key)
                    for chunk in self._read(key, final=not runs):
                        yield chunk
                await asyncio.sleep(0)
            self._tail, self._is_live = None, True
            # 2. What happens from now on.
            while subscription is not None and not subscription.is_cut and not self._is_over():
                for key, ended in (await self._hear(subscription)).items():
                    for chunk in self._read(key, final=ended):
                        yield chunk
                    await self._take_turns()
                for key in [*self._open, *self._left_at]:
                    for chunk in self._read(key, final=False):
                        yield chunk
                    await self._take_turns()
            # 3. The job ended while we were reading: all output is complete now, if we know of all attempts.
            self.is_cut = subscription is not None and subscription.is_cut
            if subscription is not None and not self.is_cut:
                for key in [*self._take(subscription), *self._open, *self._left_at]:
                    for chunk in self._read(key, final=True):
                        yield chunk
                    await self._take_turns()
        finally:
            if subscription is not None:
                self._loop.feed.unsubscribe(subscription)

    async def _take_turns(self) -> None:
        """After each look at an attempt."""
        self._looks += 1
        if self._looks % LOOKS_AT_ONCE == 0:
            await asyncio.sleep(0)

    def _is_over(self) -> bool:
        return self._request.job.id not in self._loop.state.jobs or self._request.is_over(self._job_now())

    def _job_now(self) -> JobRecord:
        """Not the record that we started with: after a full disk the whole state is read again. Only of a job that was
        forgotten meanwhile there is no other."""
        return self._loop.state.jobs.get(self._request.job.id, self._request.job)

    async def _hear(self, subscription: Subscription) -> dict[AttemptId, bool]:
        """Attempts of ours that began or ended since the last look; True: ended."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):  # not wait_for: in Python 3.11 it may swallow a cancellation
                first = await subscription.get()
        except TimeoutError:
            return {}
        return self._wanted([first]) | self._take(subscription)

    def _take(self, subscription: Subscription) -> dict[AttemptId, bool]:
        batches = []
        while not subscription.empty():
            batches.append(subscription.get_nowait())
        return self._wanted(batches)

    def _wanted(self, batches: Sequence[tuple[int, list[Event]]]) -> dict[AttemptId, bool]:
        request = self._request
        found: dict[AttemptId, bool] = {}
        for _, events in batches:
            for event in events:
                if isinstance(event, AttemptsStarted | AttemptsFinished):
                    for item in event.items:
                        key = item.attempt
                        if key.job != request.job.id or not request.has(key.task):
                            continue
                        if request.attempt in (None, key.number):
                            found[key] = isinstance(event, AttemptsFinished)
        return found

    async def _begin(self, key: AttemptId) -> None:
        """Where only last lines are wanted: there. What was read before goes on where it was."""
        if self._tail is None or key in self._open or key in self._left_at or key.task in self._done[key.number]:
            return
        readers = self._readers(key)
        for reader in readers.values():
            await reader.skip_to_tail(self._tail)
        self._open[key] = readers

    def _readers(self, key: AttemptId) -> dict[str, Reader]:
        readers = {name: Reader(*log_paths(self._loop, key, name)) for name in self._request.streams}
        for name, offset in self._left_at.pop(key, {}).items():
            readers[name].offset = offset
        return readers

    def _read(self, key: AttemptId, *, final: bool) -> Iterator[LogChunk]:
        if key.task in self._done[key.number]:
            return
        readers = self._open.get(key)
        if readers is None:
            readers = self._open[key] = self._readers(key)
        label = self._request.job.spec.label_of(key.task)
        at = time.time() if self._is_live else None
        for name, reader in readers.items():
            for text in reader.read(final=final):
                self._note(key, {name: each.offset for name, each in readers.items()})
                yield LogChunk(label, key.number, name, text, at=at)
        if final:
            self._open.pop(key, None)
            self._read_to.pop(key, None)
            self._done[key.number].add(key.task)
