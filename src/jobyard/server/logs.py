"""Task logs: where do the bytes of a job's tasks come from? Files of attempts, read as they grow, to their end."""

from __future__ import annotations

import asyncio
import base64
import codecs
import errno
import json
import os
import stat
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from jobyard.agent_protocol import packs
from jobyard.engine.intervals import IntervalSet
from jobyard.engine.job_record import JobRecord
from jobyard.errors import UserError
from jobyard.model.events import AttemptsFinished, AttemptsStarted, Event
from jobyard.model.task import AttemptId
from jobyard.server.event_feed import Subscription
from jobyard.server.log_cursor import intervals_of, offset_of
from jobyard.server.log_request import LogRequest
from jobyard.server.log_tail import tail_offset
from jobyard.server.loop import YardLoop
from jobyard.wire.views import LogChunk

CHUNK_BYTES = 1 << 16
LOOK_SECONDS = 0.1
LOOKS_AT_ONCE = 50  # attempts whose files are looked at before other requests have their turn: some 2 ms
STREAMS = ("out", "err")
TAIL_BYTES = 1 << 14  # a progress bar that writes over itself takes several KiB


def log_paths(loop: YardLoop, attempt: AttemptId, stream: str) -> list[Path]:
    """Where the file may be: attempt ids are unique, so a file of that name is the right one. A machine may be gone."""
    paths = [Path(executor.log_path(attempt, stream)) for executor in loop.executors]
    if loop.mirror is not None:
        paths.append(loop.mirror.path(attempt, stream))
    return list(dict.fromkeys(paths))


def log_path(loop: YardLoop, attempt: AttemptId, stream: str) -> Path:
    return _first_there(log_paths(loop, attempt, stream))


def _first_there(paths: Sequence[Path]) -> Path:
    return next((path for path in paths if packs.is_there(str(path))), paths[0])


class DamagedLog(OSError):
    """What a task wrote cannot be had any more, or not now; the message is a sentence for people."""


def open_log(path: Path) -> BinaryIO:
    """The file of a log, to read, or what was packed of it. Raises DamagedLog, or FileNotFoundError.

    The task owns it: it may have put a FIFO or a link in its place, and opening that would wait for ever, or read
    a file that does not belong to the task.
    """
    return _open_first([path])


def open_growing(paths: Sequence[Path]) -> BinaryIO:
    """The log of an attempt that may still run, wherever it is. Raises FileNotFoundError while it has no file."""
    return _open_first(paths, has_ended=False)


def _open_first(paths: Sequence[Path], *, has_ended: bool = True) -> BinaryIO:
    """The log in the first place where it is. Ten thousands are read in a row: no place is looked at twice.

    Where it has not ended, and has no file yet, nothing was packed of it either.
    """
    for path in paths:
        with suppress(FileNotFoundError):
            return _open_file(path)
    for path in paths:
        with suppress(FileNotFoundError):
            if has_ended or not damage_of(path):
                return _open_packed(path)
    raise FileNotFoundError(errno.ENOENT, "no log", str(paths[0]))


def _open_file(path: Path) -> BinaryIO:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise FileNotFoundError(error.errno, "no log", str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(f"{path} is no file")
    return os.fdopen(descriptor, "rb")


def _open_packed(path: Path) -> BinaryIO:
    try:
        content = packs.PACKS.content(str(path))
    except packs.DamagedPack as error:
        raise DamagedLog(str(error)) from error
    except OSError as error:
        raise DamagedLog(f"the packed output cannot be read now ({error.strerror}, {path})") from error
    if content is None:
        raise FileNotFoundError(errno.ENOENT, "no log", str(path))
    return BytesIO(content)


def damage_of(path: Path) -> str:
    """Why its output cannot be had, in a sentence; empty where it can, or there is none."""
    try:
        open_log(path).close()
    except FileNotFoundError:
        return ""
    except DamagedLog as error:
        return str(error)
    return ""


def log_size(path: Path) -> int | None:
    """None: there is none, and it has written nothing."""
    try:
        with open_log(path) as file:
            return file.seek(0, 2)
    except OSError:
        return None


def tail_lines(loop: YardLoop, attempt: AttemptId, most: int = 8) -> tuple[str, ...]:
    """The last lines of an attempt: of its standard error, or of its output where that is empty.

    A progress bar that writes over itself is one line, as it was last.
    """
    for stream in ("err", "out"):
        data = _last_bytes(log_path(loop, attempt, stream), TAIL_BYTES)
        if data:
            lines = data.decode(errors="replace").removesuffix("\n").split("\n")[-most:]
            return tuple(line.rstrip("\r").rpartition("\r")[2][:300] for line in lines)
    return ()


def last_line(loop: YardLoop, attempt: AttemptId) -> str:
    """What it wrote last, to whichever stream; of a progress bar that writes over itself, its newest state."""
    paths = [log_path(loop, attempt, stream) for stream in STREAMS]
    newest = max(paths, key=_written_at)
    data = _last_bytes(newest, 1024) or b"".join(_last_bytes(path, 1024) for path in paths)  # packed: not known which
    lines = data.decode(errors="replace").splitlines()  # a carriage return ends one too
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
    except DamagedLog as error:
        return str(error).encode()
    except OSError:
        return b""


class Reader:
    """Follows one file, whichever of `paths` it turns out to be: whole characters only, other bytes as surrogates."""

    def __init__(self, *paths: Path) -> None:
        self._paths = paths
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._read_to = 0
        self.damage = ""  # why there is no more, in words, once it was read to its end

    async def skip_to_tail(self, lines: int) -> None:
        """Begin with the last lines of what is there by now."""
        with suppress(FileNotFoundError, DamagedLog), _open_first(self._paths) as file:
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
            with _open_first(self._paths, has_ended=final) as file:
                file.seek(self._read_to)
                while data := file.read(CHUNK_BYTES):
                    self._read_to += len(data)
                    if text := self._decoder.decode(data):
                        yield text
        except FileNotFoundError:
            return
        except DamagedLog as error:
            self.damage = str(error)
        if final and (rest := self._decoder.decode(b"", final=True)):
            yield rest


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
            if reader.damage:
                yield LogChunk(label, key.number, name, "", damage=reader.damage)
        if final:
            self._open.pop(key, None)
            self._read_to.pop(key, None)
            self._done[key.number].add(key.task)
