"""Stopping: how is a running attempt ended? SIGTERM first, SIGKILL after its grace."""

from __future__ import annotations

import signal
from typing import Dict, List, Tuple

from jobyard.agent.attempts.attempt import RUNNING, Attempt
from jobyard.agent.system import processes
from jobyard.agent.system.timers import EndOfTurn, Timers

_KILL_AGAIN_SECONDS = 1.0


class Stopper:
    """Ends attempts for as long as they are among those that have not ended.

    The signals of one turn of the loop go out at its end, all together: to find the processes of a session takes a pass
    over /proc, and with thousands of attempts that is long.
    """

    def __init__(self, timers: Timers, attempts: Dict[str, Attempt]) -> None:
        self._timers = timers
        self._attempts = attempts
        self._due: List[Tuple[Attempt, int]] = []
        self._turn = EndOfTurn(timers, self._send)

    def end(self, attempts: List[Attempt], grace: float) -> None:
        """SIGTERM to the sessions of these, after the grace SIGKILL. One not known yet is ended when it is."""
        for attempt in attempts:
            attempt.wants_stop = grace if attempt.wants_stop is None else min(grace, attempt.wants_stop)
        known = [attempt for attempt in attempts if attempt.state == RUNNING]
        if not known:
            return
        if grace > 0:
            self._signal(known, signal.SIGTERM)
            self._timers.after(grace, lambda: self._kill(known))
        else:
            self._kill(known)

    def clear(self, attempt: Attempt) -> None:
        """It has ended: so does what it hid in other process groups."""
        self._signal([attempt], signal.SIGKILL)

    def _kill(self, attempts: List[Attempt]) -> None:
        alive = [attempt for attempt in attempts if self._attempts.get(attempt.id) is attempt]
        if alive:
            self._signal(alive, signal.SIGKILL)
            # Processes that forked meanwhile, or hang in the kernel, are tried again.
            self._timers.after(_KILL_AGAIN_SECONDS, lambda: self._kill(alive))

    def _signal(self, attempts: List[Attempt], number: int) -> None:
        self._due += [(attempt, number) for attempt in attempts]
        self._turn.ask()

    def _send(self) -> None:
        due, self._due = self._due, []
        starts = [(attempt.start, number) for attempt, number in due if attempt.start is not None]
        # A pid that is somebody else's by now has another start time; a group outlives its leader.
        theirs = [(s.pid, number) for s, number in starts if processes.start_time(s.pid) in (0, s.start_time)]
        killed = {pid: number for pid, number in theirs if number == signal.SIGKILL}
        numbers = {**dict(theirs), **killed}  # whatever else was asked for in the same turn
        processes.signal_sessions(numbers)
        for attempt, _ in due:
            if attempt.lane is not None:  # which its task may have stopped
                processes.send(attempt.lane.pid, signal.SIGCONT)
