"""Connection: how long is one client's HTTP connection kept in each of its states (timeouts)?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from jobyard.server.limits import BODY_BYTES_A_SECOND, DISCARDED_OF_MOST, Limits

Awaited = Literal["header", "body"]


class ClientConnection(H11Protocol):
    """Closes a client that begins a request and does not go on, or asks for an answer and does not read it.

    uvicorn bounds only the time between two requests.
    """

    def __init__(self, *args: Any, limits: Limits, on_lost: Callable[[], None], **words: Any) -> None:
        super().__init__(*args, **words)
        self.timeout_keep_alive = limits.keep_alive_seconds  # type: ignore[assignment]
        self._limits = limits
        self._on_lost = on_lost
        self._awaited: Awaited | None = None
        self._since = 0.0
        self._received = 0  # bytes of the request's body
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await("header")

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        self.resume_writing()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn does that only after an end in good order
        self._on_lost()

    def abort(self) -> None:
        """Close it at once, for somebody else. Nothing is said of it: half a request gets no answer."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)
        self._await(self._missing())
        if self._awaited == "body" and self.conn.our_state is not h11.SEND_RESPONSE:
            self._discard()

    def _missing(self) -> Awaited | None:
        """Which part of a request the client has begun to send and not finished."""
        if self.transport.is_closing():
            return None
        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if self.conn.their_state is h11.IDLE and not is_answering and self.timeout_keep_alive_task is None:
            return "header"
        return None

    def _await(self, what: Awaited | None) -> None:
        """One deadline for all of it: a byte now and then does not extend it."""
        if what == self._awaited:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._awaited = what
        if what is not None:
            self._since, self._received = time.monotonic(), 0
            seconds = self._limits.header_seconds if what == "header" else self._limits.body_seconds
            self._deadline = self.loop.call_later(seconds, self._is_late)

    def _is_late(self) -> None:
        left = self._seconds_left()
        if left > 0:
            self._deadline = self.loop.call_later(left, self._is_late)
        else:
            self.transport.abort()

    def _seconds_left(self) -> float:
        if self._awaited != "body":
            return 0.0
        if self.flow.read_paused:  # it is the server that is slow
            return self._limits.body_seconds
        allowed = self._limits.body_seconds + self._received / BODY_BYTES_A_SECOND
        return self._since + allowed - time.monotonic()

    def _discard(self) -> None:
        """Read the rest of a request that is answered already: closed at once, its sender would not get the answer."""
        if self._received > DISCARDED_OF_MOST * self._limits.body_bytes_most:
            self.transport.abort()

    # -- a client that does not read: uvicorn waits for it, for ever

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(self._limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
