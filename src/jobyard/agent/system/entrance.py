"""Entrance: how are connections accepted, also when this process can open no more files?"""

from __future__ import annotations

import errno
import selectors
import socket
from typing import Any, Callable

from jobyard.agent.system.timers import Timers

_REST_SECONDS = 1.0
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Entrance:
    """Accepts connections. Out of descriptors it pauses for a second: otherwise the loop would spin."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        timers: Timers,
        listener: socket.socket,
        welcome: Callable[[socket.socket, Any], None],
    ) -> None:
        self._selector = selector
        self._timers = timers
        self._listener = listener
        self._welcome = welcome
        listener.setblocking(False)
        self._open()

    def _open(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _accept(self, events: int) -> None:
        try:
            stream, peer = self._listener.accept()
        except OSError as error:
            if error.errno in _NO_ROOM:
                self._selector.unregister(self._listener)
                self._timers.after(_REST_SECONDS, self._open)
            return
        self._welcome(stream, peer)
