"""Boot clock: how much time has passed, whatever is done to the wall clock, and while the machine was asleep too?

Timeouts, graces and deadlines are counted by it. It begins anew with every boot, and so do processes.
"""

from __future__ import annotations

import os
import time

_TICKS = os.sysconf("SC_CLK_TCK")


def seconds() -> float:
    """Since boot, the time of a suspended machine included; where there is no such clock, without it."""
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):  # a system that has none
        return time.monotonic()


def ticks() -> int:
    """The same in the unit in which the kernel tells when a process began."""
    try:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) * _TICKS // 10**9
    except (AttributeError, OSError):
        return int(time.monotonic() * _TICKS)


def age_seconds(start_time: int) -> float:
    """Of a process that began at so many ticks since boot."""
    return max(0.0, seconds() - start_time / _TICKS)
