"""Shipping: how does what attempts write get to a server that does not share this disk?"""

from __future__ import annotations

import base64
import json
import os
from collections import deque
from contextlib import suppress
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from jobyard.agent.system.connection import Connection
from jobyard.agent.system.timers import Timer, Timers
from jobyard.agent_protocol import records

STREAMS = ("out", "err", "results")
_RUNNING_STREAMS = ("out", "err")
_LOOK_SECONDS = 0.5
_CHUNK = 3 << 16  # a multiple of three: no padding in the middle of a stream
_MOST_WAITING = 1 << 20
_MOST_AT_ONCE = 4 << 20  # then others have their turn


class Shipment:
    """The streams of one attempt, and how far they are sent. `outcome` is set when it has ended."""

    __slots__ = ("id", "is_queued", "outcome", "paths", "sent")

    def __init__(self, attempt_id: str, paths: "tuple[str, ...]", have: Dict[str, int]) -> None:
        self.id = attempt_id
        self.paths = paths
        self.sent: List[int] = [have.get(stream, 0) for stream in STREAMS]
        self.outcome: Optional[Dict[str, Any]] = None
        self.is_queued = False

    def sizes(self) -> Dict[str, int]:
        return {stream: self.sent[place] for place, stream in enumerate(STREAMS)}


class Shipper:
    """Sends streams over one connection, each in order and from where the server has it; the end of an attempt last.

    While an attempt runs its output is looked at twice a second. Never more than about a megabyte waits to be sent.
    """

    def __init__(
        self,
        connection: Connection,
        timers: Timers,
        state_dir: str,
        have: Dict[str, Dict[str, int]],
        deliver: Callable[[List[Tuple[str, Dict[str, Any]]]], None],
    ) -> None:
        self._connection = connection
        self._timers = timers
        self._state_dir = state_dir
        self._have = have
        self._deliver = deliver
        self._running: Dict[str, Shipment] = {}
        self._queue: Deque[Shipment] = deque()
        self._looking: Optional[Timer] = None
        self._resuming: Optional[Timer] = None
        self.ending: Dict[str, None] = {}  # attempts that have ended, of which not all was sent
        self.undelivered = 0  # ended, and the server does not know it
        connection.on_room = self._resume

    def close(self) -> None:
        """Nobody listens any more."""
        self._connection.on_room = None
        for timer in (self._looking, self._resuming):
            if timer is not None:
                timer.cancel()

    def started(self, attempt_id: str) -> None:
        if attempt_id not in self._running:
            self._running[attempt_id] = self._shipment(attempt_id)
        if self._looking is None:
            self._looking = self._timers.after(_LOOK_SECONDS, self._look)

    def finished(self, attempt_id: str, outcome: Dict[str, Any]) -> None:
        """Everything is written. Its end may be told when all of it is sent; `pump` begins with that."""
        shipment = self._running.pop(attempt_id, None) or self._shipment(attempt_id)
        shipment.outcome = outcome
        self.undelivered += 1
        self.ending[attempt_id] = None
        self._enqueue(shipment)

    def _shipment(self, attempt_id: str) -> Shipment:
        files = records.paths(self._state_dir, attempt_id)
        return Shipment(attempt_id, (files.out, files.err, files.results), self._have.pop(attempt_id, {}))

    def _enqueue(self, shipment: Shipment) -> None:
        if not shipment.is_queued:
            shipment.is_queued = True
            self._queue.append(shipment)

    def _look(self) -> None:
        self._looking = self._timers.after(_LOOK_SECONDS, self._look) if self._running else None
        for shipment in self._running.values():
            for place in range(len(_RUNNING_STREAMS)):
                with suppress(OSError):
                    if os.stat(shipment.paths[place]).st_size > shipment.sent[place]:
                        self._enqueue(shipment)
        self._resume()

    def _resume(self) -> None:
        self._resuming = None
        self._deliver(self.pump())

    def pump(self) -> List[Tuple[str, Dict[str, Any]]]:
        """Send as much as there is room for, everybody in turn; the rest follows when there is room again.

        Returns the ends of those of which everything has now been sent.
        """
        lines: List[bytes] = []
        ended: List[Tuple[str, Dict[str, Any]]] = []
        size, total = 0, 0
        while self._queue and total < _MOST_AT_ONCE:
            if size >= _CHUNK:
                self._connection.send_bytes(b"".join(lines))
                lines, size = [], 0
            if not self._connection.has_room(_MOST_WAITING):
                break
            shipment = self._queue.popleft()
            before = len(lines)
            is_done = self._read(shipment, lines)
            grown = sum(map(len, lines[before:]))
            size, total = size + grown, total + grown
            shipment.is_queued = not is_done
            if not is_done:
                self._queue.append(shipment)
            elif shipment.outcome is not None:
                self.ending.pop(shipment.id, None)
                ended.append((shipment.id, {**shipment.outcome, "streams": shipment.sizes()}))
        self._connection.send_bytes(b"".join(lines))
        self.undelivered -= len(ended)
        if self._queue and self._resuming is None and self._connection.has_room(_MOST_WAITING):
            self._resuming = self._timers.after(0, self._resume)
        return ended

    def _read(self, shipment: Shipment, lines: List[bytes]) -> bool:
        """Take one turn's worth from the shipment; True when nothing is left for now."""
        streams = _RUNNING_STREAMS if shipment.outcome is None else STREAMS
        for place, stream in enumerate(streams):
            offset = shipment.sent[place]
            data = _bytes_at(shipment.paths[place], offset)
            if data:
                message = {"ev": "output", "id": shipment.id, "stream": stream, "offset": offset}
                message["data"] = base64.b64encode(data).decode("ascii")
                lines.append(json.dumps(message, separators=(",", ":")).encode() + b"\n")
                shipment.sent[place] = offset + len(data)
                if len(data) == _CHUNK:
                    return False
        return True


def _bytes_at(path: str, offset: int) -> bytes:
    """What lies there, at most a chunk; nothing where there is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, _CHUNK, offset)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
