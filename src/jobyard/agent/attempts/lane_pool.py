"""Lane pool: which lanes work, which are idle, and how many are started at once?"""

from __future__ import annotations

import signal
from collections import deque
from typing import Callable, Deque, List, Optional, Set

from jobyard.agent.execution.lanes import LaneHandle
from jobyard.agent.system import processes
from jobyard.agent.system.timers import Timers

_MOST_IDLE = 8
_MOST_AT_ONCE = 16  # that are started before requests are heard again: each is a fork of some milliseconds
_WAKE_SECONDS = 10.0  # so often lanes that somebody has stopped are woken
_REAP_SECONDS = 1.0


class LanePool:
    """Starts lanes, and keeps a few idle ones for the next slots."""

    def __init__(self, timers: Timers, start: Callable[[], LaneHandle]) -> None:
        self._timers = timers
        self._start = start
        self._idle: List[LaneHandle] = []
        self._working: Set[LaneHandle] = set()
        self._started = 0  # in this turn
        self._waiting: Deque[Callable[[], None]] = deque()  # for the next turns
        self._is_waking = False

    def take(self, again: Callable[[], None]) -> Optional[LaneHandle]:
        """A lane. None: too many were started in this turn, and `again` is called in the next. Raises OSError."""
        if not self._idle and self._started >= _MOST_AT_ONCE:
            self._waiting.append(again)
            return None
        if not self._is_waking:
            self._is_waking = True
            self._timers.after(_WAKE_SECONDS, self._wake)
        lane = self._idle.pop() if self._idle else self._start_one()
        self._working.add(lane)
        return lane

    def _start_one(self) -> LaneHandle:
        if not self._started:
            self._timers.after(0.0, self._next_turn)
        self._started += 1
        return self._start()

    def _next_turn(self) -> None:
        self._started = 0
        while self._waiting and self._started < _MOST_AT_ONCE:  # of thousands, the others would only come back
            self._waiting.popleft()()

    def give_back(self, lane: LaneHandle) -> None:
        """It has nothing left to do."""
        self._working.discard(lane)
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(lane)
        else:
            lane.close()
            self._timers.after(_REAP_SECONDS, lane.reap)

    def bury(self, lane: LaneHandle) -> None:
        """Somebody killed it."""
        lane.reap()
        self._working.discard(lane)
        if lane in self._idle:
            self._idle.remove(lane)

    def _wake(self) -> None:
        """A task may send its lane SIGSTOP: then nobody would end it at its timeout, nor tell of its end."""
        for lane in self._working:
            found = processes.inspect(lane.pid)
            if found is not None and found.state == "T":
                processes.send(lane.pid, signal.SIGCONT)
        self._is_waking = bool(self._working)
        if self._is_waking:
            self._timers.after(_WAKE_SECONDS, self._wake)
