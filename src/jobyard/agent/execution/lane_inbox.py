"""Lane inbox: what has a lane been handed, and is the agent still there that did?"""

from __future__ import annotations

import socket
from collections import deque
from typing import Callable, Deque, Optional


class LaneInbox:
    """Lines from the agent, in order."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._lines: Deque[bytes] = deque()
        self._partial = b""

    @property
    def has_more(self) -> bool:
        return bool(self._lines)

    def next_line(self, before_waiting: Callable[[], None]) -> Optional[bytes]:
        """The next one, awaited if there is none. None: the agent has closed the inbox, or is gone."""
        # Look for the end of the inbox before every item: an agent that died must not have more started.
        flags = int(socket.MSG_DONTWAIT)
        while True:
            try:
                data = self._stream.recv(262144, flags)
            except BlockingIOError:
                if self._lines:
                    return self._lines.popleft()
                before_waiting()
                flags = 0
                continue
            except OSError:
                return None
            if not data:
                return None
            *lines, self._partial = (self._partial + data).split(b"\n")
            self._lines.extend(lines)
            flags = socket.MSG_DONTWAIT
