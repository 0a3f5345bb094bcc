"""Loop: who can be read, what is due, and when is it over?"""

from __future__ import annotations

import selectors
import socket
from typing import Callable, Optional

from jobyard.agent.system.timers import Timers


class Loop:
    """One thread's: makes the calls that descriptors are registered with, and those of the timers."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.timers = Timers()
        self._is_leaving = False

    def run(self) -> None:
        """Until somebody leaves."""
        while not self._is_leaving:
            for key, events in self.selector.select(self.timers.seconds_to_next()):
                if (
                    self.selector.get_map().get(key.fd) is key
                ):  # an earlier call may have dropped it, and reused the number
                    key.data(events)
            self.timers.run_due()

    def leave(self) -> None:
        """At the end of this turn."""
        self._is_leaving = True

    def leave_when_readable(self, stream: socket.socket) -> None:
        """Leave when something comes over this stream: how a signal handler reaches the loop."""
        self.selector.register(stream, selectors.EVENT_READ, lambda events: self.leave())

    def every(self, seconds: float, call: Callable[[], None], first_after: Optional[float] = None) -> None:
        """Make this call again and again."""

        def again() -> None:
            self.timers.after(seconds, again)
            call()

        self.timers.after(seconds if first_after is None else first_after, again)
