"""Respawn: how is a server started again that died while its work goes on here?"""

from __future__ import annotations

import subprocess
from typing import Callable, Dict, List, Optional

from jobyard.agent.system.timers import Timer, Timers

_FIRST_SECONDS, _LONGEST_SECONDS = 1.0, 30.0


class Respawner:
    """Starts the server's command again and again, ever more slowly, until somebody connects or nobody needs it."""

    def __init__(self, timers: Timers, is_needed: Callable[[], bool], log: Callable[[str], None]) -> None:
        self.command: List[str] = []
        self.environment: Dict[str, str] = {}  # the server's own, which this process does not have
        self._timers = timers
        self._is_needed = is_needed
        self._log = log
        self._wait = _FIRST_SECONDS
        self._timer: Optional[Timer] = None
        self._children: List["subprocess.Popen[bytes]"] = []

    def begin(self) -> None:
        """The connection is lost."""
        self.end()
        self._wait = _FIRST_SECONDS
        self._timer = self._timers.after(self._wait, self._try)

    def end(self) -> None:
        """There is a server."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _try(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]
        if self.command and self._is_needed():
            self._start()
            self._wait = min(self._wait * 2, _LONGEST_SECONDS)
        self._timer = self._timers.after(self._wait, self._try)

    def _start(self) -> None:
        try:
            child = subprocess.Popen(
                self.command,
                env=self.environment or None,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except (OSError, ValueError) as error:
            self._log("cannot start the server again with %s: %s" % (self.command, error))
            return
        self._log("the server is gone while work goes on: started %s, pid %d" % (self.command[0], child.pid))
        self._children.append(child)
