"""Timers: what has to be done later, and how long may the loop sleep until then?

A loop that sleeps through a suspend wakes late: the agent has a timer every second, so late by no more than that.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Callable, List, Optional, Tuple

from jobyard.agent_protocol import clock


class Timer:
    """A call that waits for its time; cancelling one that has run does nothing."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Optional[Callable[[], None]] = call

    def cancel(self) -> None:
        self.call = None


class Timers:
    def __init__(self) -> None:
        self._heap: List[Tuple[float, int, Timer]] = []
        self._order = itertools.count()

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Make this call once, not before so many seconds have passed."""
        timer = Timer(call)
        heapq.heappush(self._heap, (clock.seconds() + max(seconds, 0.0), next(self._order), timer))
        return timer

    def seconds_to_next(self) -> Optional[float]:
        """How long nothing is due; None when nothing waits."""
        while self._heap and self._heap[0][2].call is None:
            heapq.heappop(self._heap)
        return max(0.0, self._heap[0][0] - clock.seconds()) if self._heap else None

    def run_due(self) -> None:
        """Make the calls whose time has come; ones that they add wait for the next round."""
        now, due = clock.seconds(), []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        for timer in due:
            call, timer.call = timer.call, None
            if call is not None:
                call()


class EndOfTurn:
    """A call at the end of this turn of the loop: once, however often it is asked for until then."""

    def __init__(self, timers: Timers, call: Callable[[], None]) -> None:
        self._timers = timers
        self._call = call
        self._is_asked = False

    def ask(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._timers.after(0.0, self._make)

    def _make(self) -> None:
        self._is_asked = False
        self._call()
