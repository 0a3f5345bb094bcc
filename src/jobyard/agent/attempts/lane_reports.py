"""Lane reports: what have the lanes told since we last looked?"""

from __future__ import annotations

import os
import selectors
import time
from typing import Callable, List

from jobyard.agent.system.timers import Timers

_BUSY_SECONDS = 0.02  # reports that come closer together than this are read in batches
_PAUSE_SECONDS = 0.01


class LaneReports:
    """One pipe that all lanes write whole lines to. Read at once while little comes, and in batches while much does."""

    def __init__(self, selector: selectors.BaseSelector, timers: Timers, take: Callable[[List[bytes]], None]) -> None:
        self._selector = selector
        self._timers = timers
        self._take = take
        self._partial = b""
        self._last = 0.0
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._listen()

    def _listen(self) -> None:
        self._selector.register(self._reader, selectors.EVENT_READ, self._on_reports)

    def _on_reports(self, events: int) -> None:
        now = time.monotonic()
        self._take(self.read())
        if now - self._last < _BUSY_SECONDS:
            # Many quick tasks: being woken for each of them would cost more than they do.
            self._selector.unregister(self._reader)
            self._timers.after(_PAUSE_SECONDS, self._listen)
        self._last = now

    def read(self) -> List[bytes]:
        """The lines that have come, as many as fit into one read; does not wait for any."""
        try:
            data = os.read(self._reader, 65536)
        except BlockingIOError:
            return []
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        return lines
