"""Alarm: how does a task end that runs longer than it may, whatever became of the agent?"""

from __future__ import annotations

import signal
from typing import Any

from jobyard.agent.system import processes
from jobyard.agent_protocol import clock

LOOK_SECONDS = 10.0  # so much too late a timeout comes at most, if the machine was suspended before it


class Alarm:
    """Ends a session that runs too long: the polite signal, the grace, the hard one. Works with no agent around.

    The kernel's timer stands still while the machine is suspended, so it only says when to look at the boot clock.
    """

    def __init__(self, session: int, seconds: float, grace: float) -> None:
        self.has_rung = False
        self._session = session
        self._grace = grace
        self._due = clock.seconds() + seconds
        signal.signal(signal.SIGALRM, self._look)
        self._arm()

    def _arm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, min(max(self._due - clock.seconds(), 0.001), LOOK_SECONDS))

    def _look(self, number: int, frame: Any) -> None:
        if clock.seconds() < self._due:
            self._arm()
            return
        hard = self.has_rung or self._grace <= 0
        self.has_rung = True
        processes.signal_sessions({self._session: signal.SIGKILL if hard else signal.SIGTERM})
        if not hard:
            self._due = clock.seconds() + self._grace
            self._arm()

    def disarm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
