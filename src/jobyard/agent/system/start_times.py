"""Start times of children: when did the process that we have just made begin, by the kernel's count?

A look into /proc costs as much as the rest of a record: 30 to 40 us here, and hundreds of tasks a second come here.
"""

from __future__ import annotations

from typing import Callable

from jobyard.agent.system import processes
from jobyard.agent_protocol import clock


class StartTimes:
    """Who begins and is seen within one tick of the kernel's clock began in that tick; of others /proc tells."""

    def __init__(
        self, ticks: Callable[[], int] = clock.ticks, look: Callable[[int], int] = processes.start_time
    ) -> None:
        self._ticks = ticks
        self._look = look
        self._before = -1
        self._is_trusted = False  # until /proc has agreed with the clock: some kernels only play Linux
        self._has_failed = False

    def about_to_start(self) -> None:
        """Say so right before the child is made."""
        self._before = self._ticks()

    def of(self, pid: int) -> int:
        """Of the child that was made since then."""
        now = self._ticks()
        if self._is_trusted and now == self._before:
            return now
        found = self._look(pid)
        self._has_failed = self._has_failed or not self._before <= found <= now
        self._is_trusted = not self._has_failed
        return found
