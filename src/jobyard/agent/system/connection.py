"""Connection: how do JSON lines of any size go over a socket without blocking either side?"""

from __future__ import annotations

import selectors
import socket
from typing import Any, Callable, List, Optional

from jobyard.agent_protocol.lines import lines_of

_CHUNK = 1 << 18
_LONGEST_LINE = 1 << 28


class Connection:
    """One end of a stream of lines. Reads and writes only when that does not block; what cannot go yet is kept."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        stream: socket.socket,
        on_line: Callable[[bytes], None],
        on_close: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._stream = stream
        self._on_line = on_line
        self._on_close = on_close
        self._incoming: List[bytes] = []
        self._incoming_size = 0
        self._outgoing = bytearray()
        self._is_broken = False
        self.is_open = True
        self.on_room: Optional[Callable[[], None]] = None  # called when what was kept has gone
        stream.setblocking(False)
        self._events = selectors.EVENT_READ
        selector.register(stream, self._events, self._ready)

    def send(self, message: Any) -> None:
        """Queue one message; sent at once as far as the other side takes it. On a closed connection it is dropped."""
        self.send_bytes(b"".join(lines_of(message)))

    def send_bytes(self, data: bytes) -> None:
        if not self.is_open or not data:
            return
        self._outgoing += data
        self._write()

    @property
    def is_flushed(self) -> bool:
        return not self._outgoing

    def has_room(self, size: int) -> bool:
        """Does less than this wait to be sent? Never so once the other side is gone."""
        return self.is_open and not self._is_broken and len(self._outgoing) < size

    def close(self) -> None:
        """Drop the connection without calling `on_close`."""
        if self.is_open:
            self.is_open = False
            self._selector.unregister(self._stream)
            self._stream.close()

    def _lost(self) -> None:
        if self.is_open:
            self.close()
            self._on_close()

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._write()
            if self.on_room is not None and not self._outgoing:
                self.on_room()
        if events & selectors.EVENT_READ and self.is_open:
            self._read()

    def _write(self) -> None:
        try:
            while self._outgoing:
                with memoryview(self._outgoing) as view:
                    sent = self._stream.send(view[:_CHUNK])
                del self._outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:
            # Not _lost(): the caller may not expect it here. The next read notices the end as well.
            self._outgoing.clear()
            self._is_broken = True
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0)
        if wanted != self._events:
            self._events = wanted
            self._selector.modify(self._stream, wanted, self._ready)

    def _read(self) -> None:
        try:
            data = self._stream.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        head, newline, tail = data.partition(b"\n")
        self._incoming.append(head)
        self._incoming_size += len(head)
        if not newline:
            if self._incoming_size > _LONGEST_LINE:
                self._lost()
            return
        lines = [b"".join(self._incoming), *tail.split(b"\n")]
        rest = lines.pop()
        self._incoming, self._incoming_size = [rest], len(rest)
        for line in lines:
            if self.is_open and line.strip():
                self._on_line(line)
