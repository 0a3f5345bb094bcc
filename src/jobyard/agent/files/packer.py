"""Packer: when are the files of attempts that have ended packed, and how are they had again if somebody asks?

An attempt may be packed once its end was told; should the server ask again, because it died before it had written that
down, its files are put back first. So nothing needs to be acknowledged, as before.
"""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from contextlib import suppress
from typing import Callable, Collection, DefaultDict, Dict, Iterator, List, Optional, Set

from jobyard.agent.system import strays
from jobyard.agent.system.forking import Background
from jobyard.agent.system.timers import Timers
from jobyard.agent_protocol import packing, packs, records
from jobyard.agent_protocol.pack_blocks import Key

_QUIET_SECONDS = 5.0  # after the last end: what is quick finds its files where they were written
_AGE_SECONDS = 60.0  # also where it is never quiet
_LOOK_SECONDS = 1.0
_MOST_WAITING = 5_000  # attempts that have files of their own; then they are packed in any case
_AT_ONCE = 5_000  # in one child: a second's work
_MOST_FOUND = 20_000  # by one look at what earlier agents left
# So much longer an empty directory stays: ext4 makes directories where few are, which must not be where files have just
# been deleted, see `disk_groups`. It forgets deleted files after a minute.
_EMPTY_TIMES = 15


class Packer:
    """Packs in batches, in a child that may be killed at any moment. One child at a time."""

    def __init__(self, background: Background, timers: Timers, state_dir: str, log: Callable[[str], None]) -> None:
        self._background = background
        self._timers = timers
        self._state_dir = state_dir
        self._log = log
        self._waiting: Dict[str, None] = {}
        self._first_at = self._last_at = 0.0
        self._in_flight: Set[str] = set()
        self._child = 0
        self._is_looking = False
        self._is_finding = False
        self._seconds = float(os.environ.get("JOBYARD_PACK_SECONDS") or _QUIET_SECONDS)
        self.needed: Callable[[], Collection[str]] = tuple  # attempts that somebody here has to do with

    def told(self, attempt_ids: Collection[str]) -> None:
        """The server was told that these have ended."""
        if not attempt_ids:
            return
        self._last_at = time.monotonic()
        if not self._waiting:
            self._first_at = self._last_at
        self._waiting.update(dict.fromkeys(attempt_ids))
        self._look_later()

    def unpack(self, attempt_id: str, *, is_new: bool = False) -> None:
        """Have the files of this attempt where they were written, if it was packed. Raises OSError.

        Where its record may be in a damaged part of the pack, it gets one that says so: it never starts again. But a
        new attempt is in no pack.
        """
        self._waiting.pop(attempt_id, None)
        if attempt_id in self._in_flight:
            self._stop_child()
        job, task, number = records.split_attempt(attempt_id)
        files = records.paths(self._state_dir, attempt_id)
        try:
            packs.restore(self._state_dir, job, (task, number), files)
        except packs.DamagedPack as error:
            if not is_new:
                self._log("%s: %s" % (attempt_id, error))
                packs.end_lost(files, time.time(), str(error))

    def pack_leftovers(self, is_answered: Callable[[], bool]) -> None:
        """Look for what agents before us left, soon. It is packed if `is_answered` then: a server knows of the rest."""
        if not self._is_finding:
            self._is_finding = True
            self._timers.after(self._seconds, lambda: self._find(is_answered))

    def _find(self, is_answered: Callable[[], bool]) -> None:
        path = "%s/unpacked.%d" % (self._state_dir, os.getpid())

        def found() -> None:
            self._is_finding = False
            names = _taken_lines(path)
            if is_answered():
                known = {*self.needed(), *self._waiting, *self._in_flight}
                self.told([name for name in names if name not in known])
                if len(names) == _MOST_FOUND:
                    self.pack_leftovers(is_answered)

        agent = os.getpid()
        try:
            self._background.run(lambda: _list_ended(agent, self._state_dir, path), found)
        except OSError:  # too many processes: the next time
            self._is_finding = False

    def _look_later(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._timers.after(min(_LOOK_SECONDS, self._seconds), self._look)

    def _look(self) -> None:
        self._is_looking = False
        if not self._waiting:
            return
        now = time.monotonic()
        is_due = now - self._last_at >= self._seconds or now - self._first_at >= _AGE_SECONDS
        if (is_due or len(self._waiting) >= _MOST_WAITING) and not self._child:
            self._begin()
        self._look_later()

    def _begin(self) -> None:
        some, needed, agent = list(self._waiting)[:_AT_ONCE], self.needed(), os.getpid()
        for name in some:
            del self._waiting[name]
        batch = [name for name in some if name not in needed]  # of the others the end will be told again
        self._first_at = time.monotonic()
        if not batch:
            return
        try:
            self._child = self._background.run(lambda: _pack(agent, self._state_dir, batch), lambda: self._done(batch))
            self._in_flight = set(batch)
        except OSError:  # too many processes: that may pass
            self._waiting.update(dict.fromkeys(batch))

    def _done(self, batch: List[str]) -> None:
        self._child, self._in_flight = 0, set()
        emptied: Set[str] = set()
        for job, keys in _by_job(batch).items():
            emptied |= packing.directories("%s/jobs/%s" % (self._state_dir, job), keys)
        self._timers.after(_EMPTY_TIMES * self._seconds, lambda: packing.remove_empty(emptied))
        if len(self._waiting) >= _MOST_WAITING:
            self._begin()

    def _stop_child(self) -> None:
        """Kill it, which is safe at any moment. What it has not packed yet still has its files, and is packed later."""
        with suppress(OSError):
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
        self._waiting.update(dict.fromkeys(self._in_flight))
        self._in_flight = set()


def _pack(agent: int, state_dir: str, names: List[str]) -> None:
    """In a child of the agent."""
    strays.die_with(agent)
    with suppress(OSError):
        os.nice(5)
    for job, keys in _by_job(names).items():
        with suppress(FileNotFoundError):  # it was forgotten
            packing.pack("%s/jobs/%s" % (state_dir, job), keys, keep_directories=True)


def _by_job(names: List[str]) -> Dict[str, List[Key]]:
    jobs: DefaultDict[str, List[Key]] = defaultdict(list)
    for name in names:
        job, task, number = records.split_attempt(name)
        jobs[job].append((task, number))
    return jobs


def _list_ended(agent: int, state_dir: str, path: str) -> None:
    """In a child of the agent: write down which attempts have ended and still have a record of their own."""
    strays.die_with(agent)
    with suppress(OSError):
        os.nice(5)
    with open(path, "w") as file:
        for count, name in enumerate(_ended(state_dir)):
            if count == _MOST_FOUND:
                break
            file.write(name + "\n")


def _ended(state_dir: str) -> Iterator[str]:
    for job in _names(state_dir + "/jobs"):
        for bucket in _names("%s/jobs/%s" % (state_dir, job)):
            if bucket.isdigit():
                yield from _ended_in("%s/jobs/%s/%s" % (state_dir, job, bucket), job)


def _ended_in(directory: str, job: str) -> Iterator[str]:
    names = _names(directory)
    if not names:
        with suppress(OSError):
            os.rmdir(directory)
    for name in names:
        if name.endswith(".rec"):
            record: Optional[records.Record] = None
            with suppress(OSError):
                record = records.read("%s/%s" % (directory, name))
            if record is not None and record.ending is not None:
                yield "%s.%s" % (job, name[: -len(".rec")])


def _names(directory: str) -> List[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _taken_lines(path: str) -> List[str]:
    """The file's lines; the file goes."""
    try:
        with open(path) as file:
            lines = file.read().split("\n")[:-1]
        os.unlink(path)
    except OSError:
        return []
    return lines
