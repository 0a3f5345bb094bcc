"""Spools: how far have the attempts that run here come, by their own reports?"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Dict, Optional

from jobyard.agent.attempts.attempt import RUNNING, Attempt
from jobyard.agent.attempts.outbox import Outbox
from jobyard.agent.system.timers import Timer, Timers
from jobyard.agent_protocol import records
from jobyard.agent_protocol.progress_reducer import ProgressReducer

_LOOK_SECONDS = 0.5
_YOUNG_SECONDS = 0.3  # most tasks of a yard are over by then, and never report
_MOST_AT_ONCE = 1 << 18  # some 20 ms of work; the rest at the next look
_MOST_AT_END = 16 << 20


class Spool:
    """One spool, read as far as it goes."""

    __slots__ = ("_offset", "_path", "_started_at", "is_unsent", "reducer")

    def __init__(self, path: str, started_at: Optional[float]) -> None:
        self._path = path
        self._started_at = started_at
        self._offset = 0
        self.reducer = ProgressReducer(started_at)
        self.is_unsent = False  # the server has not been told of all that was read

    def look(self) -> None:
        """Read what is new, a bounded piece of it."""
        try:
            size = os.stat(self._path).st_size
        except OSError:
            return
        descriptor = _opened(self._path) if size != self._offset else None
        if descriptor is not None:
            try:
                self._take(descriptor, _MOST_AT_ONCE, size)
            except OSError:
                pass  # a pipe, a directory: nothing that can be read
            finally:
                os.close(descriptor)

    def catches_up(self) -> bool:
        """Is so little left that the rest can be read at once? Reads a piece otherwise."""
        try:
            size = os.stat(self._path).st_size
        except OSError:
            return True
        left, offset = size - self._offset, self._offset
        if left <= _MOST_AT_ONCE:
            return True
        self._pass_over(left - _MOST_AT_END)
        self.look()
        return self._offset == offset  # nothing that can be read

    def _pass_over(self, size: int) -> None:
        if size > 0:
            self.reducer.passed_over(size)
            self._offset += size

    def read_to_end(self, descriptor: int) -> None:
        """Nothing more will come."""
        with suppress(OSError):  # a pipe, a directory: nothing that can be read
            size = os.fstat(descriptor).st_size
            self._pass_over(size - self._offset - _MOST_AT_END)
            self._take(descriptor, _MOST_AT_END, size)
        self.reducer.close()

    def _take(self, descriptor: int, most: int, size: int) -> None:
        if size < self._offset:  # somebody began it anew
            self._offset, self.reducer = 0, ProgressReducer(self._started_at)
        end = self._offset + most
        while self._offset < end:
            data = os.pread(descriptor, _MOST_AT_ONCE, self._offset)
            if not data:
                return
            self._offset += len(data)
            self.is_unsent = True
            self.reducer.feed(data)


class Spools:
    """Looks twice a second at the spools of attempts that have run for a moment, and tells what has changed."""

    def __init__(self, timers: Timers, attempts: Dict[str, Attempt], outbox: Outbox, state_dir: str) -> None:
        self._timers = timers
        self._attempts = attempts
        self._outbox = outbox
        self._state_dir = state_dir
        self._spools: Dict[str, Spool] = {}
        self._timer: Optional[Timer] = None

    def watch(self) -> None:
        """Something runs."""
        if self._timer is None:
            self._timer = self._timers.after(_LOOK_SECONDS, self._look_regularly)

    def of(self, attempt: Attempt) -> Optional[ProgressReducer]:
        """What an attempt has reported until now; None if nothing."""
        spool = self._known(attempt)
        if spool is None:
            return None
        spool.look()
        return spool.reducer

    def _known(self, attempt: Attempt) -> Optional[Spool]:
        spool = self._spools.get(attempt.id)
        if spool is None:
            path = records.paths(self._state_dir, attempt.id).spool
            if os.path.exists(path):
                spool = self._spools[attempt.id] = Spool(path, attempt.started_at)
        return spool

    def catches_up(self, attempt: Attempt) -> bool:
        """Has all of its spool been read, so that its end may be reported? Otherwise reads the next piece."""
        spool = self._known(attempt)
        return spool is None or spool.catches_up()

    def tell_all(self) -> None:
        """A new server is connected: report everything."""
        for spool in self._spools.values():
            spool.is_unsent = True
        self._look(time.time())

    def ended(self, attempt: Attempt, path: str) -> Optional[ProgressReducer]:
        """Everything that an attempt has reported, now that it is over; None if nothing."""
        known = self._spools.pop(attempt.id, None)
        descriptor = _opened(path)
        if descriptor is None:  # most tasks never report: this is all that it costs them
            return known.reducer if known is not None else None
        try:
            spool = known or Spool(path, attempt.started_at)
            spool.read_to_end(descriptor)
        finally:
            os.close(descriptor)
        return spool.reducer

    def forget(self, attempt: Attempt) -> None:
        self._spools.pop(attempt.id, None)

    def _look_regularly(self) -> None:
        self._timer = None
        if self._look(time.time() - _YOUNG_SECONDS):
            self.watch()

    def _look(self, begun_before: float) -> bool:
        """Look at those that began before this moment; is there anything that runs?"""
        does_any_run, unsent = False, {}
        for attempt in self._attempts.values():
            if attempt.state != RUNNING:
                continue
            does_any_run = True
            if attempt.started_at is not None and attempt.started_at < begun_before and not attempt.is_superseded:
                self.of(attempt)
                spool = self._spools.get(attempt.id)
                if spool is not None and spool.is_unsent:
                    unsent[attempt.id] = spool
        self._tell(unsent)
        return does_any_run

    def _tell(self, unsent: Dict[str, Spool]) -> None:
        progress: Dict[str, Any] = {}
        for attempt_id, spool in unsent.items():
            found = spool.reducer.progress()
            if found is not None:
                progress[attempt_id] = found
        if progress and self._outbox.progressed(progress):
            for spool in unsent.values():
                spool.is_unsent = False


def _opened(path: str) -> Optional[int]:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
