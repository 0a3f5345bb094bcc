"""Forking: what must a forked child close, and how does the agent learn that one is done?"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import traceback
from contextlib import suppress
from typing import Callable, Set

from jobyard.agent.system import processes, watch
from jobyard.agent.system.timers import Timers


def let_go(kept: Set[int]) -> None:
    """Become independent of the agent: own session, signals at their defaults, no descriptors but these."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # A lane's inbox held open here would hide from that lane that the agent died.
    close_all_but(kept)


def close_all_but(kept: Set[int]) -> None:
    """In a few calls: an agent has a descriptor for each lane, and each of thousands of lanes comes here."""
    with open("/proc/self/status", "rb") as file:
        end = int(file.read().split(b"FDSize:")[1].split()[0])
    first = 0
    for number in sorted(kept):
        if first < number:  # Python 3.11 closes everything where both are 0
            os.closerange(first, number)
        first = number + 1
    os.closerange(first, end)


class Background:
    """Work on files that would keep the loop waiting, each in a child of its own. A child outlives its agent."""

    def __init__(self, selector: selectors.BaseSelector, timers: Timers) -> None:
        self._selector = selector
        self._timers = timers
        self.count = 0

    def run(self, work: Callable[[], None], then: Callable[[], None]) -> int:
        """Do `work` in a child; `then` is called from the loop when it has ended, well or not. Raises OSError.

        Returns the child, which may be killed until `then` is called.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _be_the_child(work)
        self.count += 1

        def gone() -> None:
            self.count -= 1
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
            then()

        watch.when_gone(self._selector, self._timers, pid, processes.start_time(pid), gone)
        return pid


def _be_the_child(work: Callable[[], None]) -> None:
    code = 70
    try:
        let_go({0, 1, 2})
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)
