"""Memory watch: who uses more than it may, where no cgroup keeps it within its limit?

What counts is the proportional set size of a task's processes, without pages of files: what several of them share
counts once, and what the kernel can drop at any time does not count, as in a cgroup.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Dict, List, Set

from jobyard.agent.attempts.attempt import Attempt
from jobyard.agent.system import processes, strays
from jobyard.agent.system.processes import Process
from jobyard.agent.system.timers import Timers
from jobyard.agent_protocol import records

LOOK_SECONDS = 0.5
_SHARE = 20  # at most 1/20 of the agent's time goes into looking


class MemoryWatch:
    """Looks at the attempts that it was given for as long as they run. Nobody to watch costs nothing."""

    def __init__(self, timers: Timers, attempts: Dict[str, Attempt], state_dir: str) -> None:
        self._timers = timers
        self._attempts = attempts
        self._state_dir = state_dir
        self._watched: Dict[str, int] = {}  # by attempt: its lane
        self._is_looking = False

    def begin(self, attempt: Attempt) -> None:
        """It runs now, and has a limit. If a cgroup holds it, there is nothing to do."""
        record = records.read(records.paths(self._state_dir, attempt.id).record)
        if record is None or record.claim is None or record.limit is None or record.limit.group:
            return
        self._watched[attempt.id] = record.claim.lane_pid
        if not self._is_looking:
            self._is_looking = True
            self._timers.after(0.0, self._look)

    def _look(self) -> None:
        begin = time.monotonic()
        self._watched = {name: lane for name, lane in self._watched.items() if name in self._attempts}
        if not self._watched:
            self._is_looking = False
            return
        found = list(processes.scan())
        for name, lane in list(self._watched.items()):
            attempt = self._attempts[name]
            self._check(attempt, strays.of_task(found, attempt.pid, lane, set()))
        self._timers.after(max(LOOK_SECONDS, _SHARE * (time.monotonic() - begin)), self._look)

    def _check(self, attempt: Attempt, tasks: List[Process]) -> None:
        limit_kib = attempt.limit_mib * 1024
        if sum(process.rss_kib for process in tasks) <= limit_kib:
            return  # exact shares are never more than that, and take far longer to read
        used_kib = sum(map(_held_kib, tasks))
        attempt.seen_with(-(-used_kib // 1024))
        if used_kib > limit_kib:
            self._end(attempt, used_kib, {process.pid for process in tasks})

    def _end(self, attempt: Attempt, used_kib: int, pids: Set[int]) -> None:
        """As the kernel would: at once. Written down before, because we may die in between."""
        path = records.paths(self._state_dir, attempt.id).record
        try:
            records.append_over(path, used_kib)
        except OSError:
            return  # a full disk: tried again at the next look
        attempt.end_reason = "OutOfMemory"
        for pid in pids:
            if pid != os.getpid():
                processes.send(pid, signal.SIGKILL)


def _held_kib(process: Process) -> int:
    """All of its pages, where we may not see whose they are."""
    try:
        with open("/proc/%d/smaps_rollup" % process.pid, "rb") as file:
            lines = [line.split() for line in file.read().splitlines()[1:]]
        sizes = {words[0]: int(words[1]) for words in lines if len(words) == 3}
        return sizes[b"Pss:"] - sizes.get(b"Pss_File:", 0)
    except FileNotFoundError:  # it is gone, or the kernel is older than 4.14
        return process.rss_kib if processes.start_time(process.pid) == process.start_time else 0
    except (OSError, ValueError, KeyError):
        return process.rss_kib
