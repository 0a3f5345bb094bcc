"""Kernel kills: has the kernel killed a process here because memory ran out?"""

from __future__ import annotations

import time
from typing import List, Optional

from jobyard.agent.system import probe

_FRESH_SECONDS = 1.0


class KernelKills:
    """A counter of such kills: of our own cgroup, which tasks share with us, or else of the machine.

    It is read at most once a second, so that quick tasks do not pay for it.
    """

    def __init__(self, files: Optional[List[str]] = None) -> None:
        self._files = counters() if files is None else files
        self._count = 0
        self._read_at = 0.0

    def remember(self) -> None:
        """An attempt begins: only kills from about now on can concern it."""
        now = time.monotonic()
        if now - self._read_at > _FRESH_SECONDS:
            self._count, self._read_at = self._total(), now

    def has_killed(self) -> bool:
        """Since it was last remembered."""
        before, self._count, self._read_at = self._count, self._total(), time.monotonic()
        return self._count > before

    def _total(self) -> int:
        return sum(probe.count_in(path, "oom_kill") or 0 for path in self._files)


def counters() -> List[str]:
    """The files that count: of version 2, of version 1, or both; where no cgroup counts, the machine's own."""
    found = []
    for name in ("memory.events", "memory.oom_control"):
        # The innermost that counts: in version 2 it counts what is within it as well.
        for directory in reversed(probe.cgroup_directories("memory")):
            path = directory + "/" + name
            if probe.count_in(path, "oom_kill") is not None:
                found.append(path)
                break
    return found or ["/proc/vmstat"]
