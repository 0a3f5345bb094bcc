"""Accepting: who gets a connection? Everybody until a bound; nobody makes us spin, also without free descriptors."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
from collections import Counter
from contextlib import AbstractContextManager, nullcontext, suppress
from http import HTTPStatus

import uvicorn

from jobyard.server.connection import Connection
from jobyard.server.limits import ACCEPT_PAUSE_SECONDS, Limits

log = logging.getLogger(__name__)

OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# What may be wrong with one connection (accept(2)) is no matter for the next.
PASSING = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EINTR})


class Peers:
    """Who holds how many connections."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: Counter[str] = Counter()

    def enter(self, peer: str) -> str:
        """Counts one more of this peer; or says why it gets none."""
        if self._held[peer] >= self._limits.connections_per_peer:
            whose = f"{peer} has" if peer else "the yard's socket has"
            return f"{whose} {self._held[peer]} open connections already; close some, or try again"
        if self._held.total() >= self._limits.connections_most:
            return f"the server has {self._held.total()} open connections already; try again"
        self._held[peer] += 1
        return ""

    def leave(self, peer: str) -> None:
        self._held[peer] -= 1
        if not self._held[peer]:
            del self._held[peer]


class BoundedServer(uvicorn.Server):
    """uvicorn with connections of ours, accepted by us.

    asyncio's own server tries 2048 times and logs as often when a process has no descriptor left, each second anew
    (Python 3.11, `_accept_connection`). And signals are ours: uvicorn's handlers would end the process their way.
    """

    def __init__(self, config: uvicorn.Config, limits: Limits) -> None:
        super().__init__(config)
        self._limits = limits
        self._peers = Peers(limits)
        self._accepting: list[asyncio.Task[None]] = []

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []  # those of asyncio
        for each in sockets or ():
            each.setblocking(False)
            self._accepting.append(asyncio.create_task(self._accept(each), name="accept"))
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, address = await loop.sock_accept(listener)
            except OSError as error:
                await self._after(error)
                continue
            peer = address[0] if isinstance(address, tuple) else ""
            if why := self._peers.enter(peer):
                log.warning("a connection was refused: %s", why)
                _refuse(taken, why)
                await asyncio.sleep(0)  # a flood of them is no reason to keep others waiting
                continue
            await self._connect(taken, peer)

    async def _after(self, error: OSError) -> None:
        if error.errno in OUT_OF_RESOURCES:
            log.error("no connection can be accepted now: %s", error.strerror)
            await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
        elif error.errno not in PASSING:
            raise error

    async def _connect(self, taken: socket.socket, peer: str) -> None:
        loop = asyncio.get_running_loop()
        connection = Connection(
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            limits=self._limits,
            on_lost=lambda: self._peers.leave(peer),
        )
        try:
            await loop.connect_accepted_socket(lambda: connection, taken)
        except OSError:  # it went before it was here
            taken.close()
            self._peers.leave(peer)


def _refuse(taken: socket.socket, why: str) -> None:
    """One sentence, as far as it goes without waiting."""
    body = json.dumps({"code": "unreachable", "title": why, "status": 503}).encode()
    status = HTTPStatus.SERVICE_UNAVAILABLE
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/problem+json\r\n"
        f"Content-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    )
    with taken, suppress(OSError):
        with suppress(BlockingIOError):
            taken.recv(1 << 16)  # what came and is not read would take our answer away from the sender
        taken.send(head.encode() + body)
