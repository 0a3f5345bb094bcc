"""Process watch: when is a process gone that is not our child?"""

from __future__ import annotations

import os
import selectors
from typing import Callable

from jobyard.agent.system import processes
from jobyard.agent.system.timers import Timers

_POLL_SECONDS = 0.25


def when_gone(
    selector: selectors.BaseSelector, timers: Timers, pid: int, start_time: int, call: Callable[[], None]
) -> None:
    """Call once when exactly this process no longer runs; from the loop, never before this returns."""
    try:
        descriptor = os.pidfd_open(pid)  # type: ignore[attr-defined,unused-ignore]
    except (AttributeError, OSError):  # Python 3.8, an old kernel, or already gone
        _poll(timers, pid, start_time, call)
        return

    def gone(events: int) -> None:
        selector.unregister(descriptor)
        os.close(descriptor)
        call()

    if not processes.is_alive(pid, start_time):
        os.close(descriptor)
        timers.after(0, call)
    else:
        selector.register(descriptor, selectors.EVENT_READ, gone)


def _poll(timers: Timers, pid: int, start_time: int, call: Callable[[], None]) -> None:
    if processes.is_alive(pid, start_time):
        timers.after(_POLL_SECONDS, lambda: _poll(timers, pid, start_time, call))
    else:
        timers.after(0, call)
