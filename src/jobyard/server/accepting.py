"""Accepting connections: which client gets one? Every client up to a limit; no busy loop when descriptors run out."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from http import HTTPStatus

import uvicorn

from jobyard.model.codec import encode
from jobyard.server.connection import ClientConnection
from jobyard.server.connection_table import ON_GOOD_TOKEN, ConnectionTable, Held, peer_of
from jobyard.server.limits import ACCEPT_PAUSE_SECONDS, Limits
from jobyard.wire.views import Problem

log = logging.getLogger(__name__)

# Errors of one connection (accept(2)) that do not affect the next.
PASSING = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EINTR})
CLOSED = frozenset({errno.EBADF, errno.EINVAL})  # the listener itself is gone


class BoundedServer(uvicorn.Server):
    """uvicorn with connections of ours, accepted by us.

    asyncio's own server tries 2048 times and logs as often when a process has no descriptor left, each second anew
    (Python 3.11, `_accept_connection`). And signals are ours: uvicorn's handlers would end the process their way.
    """

    def __init__(self, config: uvicorn.Config, limits: Limits) -> None:
        super().__init__(config)
        self._limits = limits
        self._table = ConnectionTable(limits)
        self._accepting: list[asyncio.Task[None]] = []

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []  # those of asyncio
        for each in sockets or ():
            each.setblocking(False)
            task = asyncio.create_task(self._accept(each), name="accept")
            task.add_done_callback(self._ended)
            self._accepting.append(task)
        self.started = True

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A server that accepts no connections must end, so that a client can start another."""
        if not task.cancelled():
            log.error("no more connections are accepted, so the server ends", exc_info=task.exception())
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        """Until it is cancelled, or the listener is closed."""
        while True:
            try:
                await self._accept_one(listener)
            except OSError as error:
                if error.errno in CLOSED:
                    raise
                if error.errno not in PASSING:
                    log.error("no connection can be accepted now: %s", error.strerror or error)
                    await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
            except Exception:  # a bug of ours with one connection must not stop the accept loop
                log.exception("a connection could not be taken")
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)

    async def _accept_one(self, listener: socket.socket) -> None:
        taken, address = await asyncio.get_running_loop().sock_accept(listener)
        peer = peer_of(address)
        if why := self._make_room(peer):
            log.warning("a connection was refused: %s", why)
            _refuse(taken, f"{why}; close some, or try again")
            await asyncio.sleep(0)  # many of them must not keep others waiting
            return
        held = Held(peer)
        self._table.add(held)
        try:
            await self._connect(taken, held)
        except Exception as error:
            taken.close()
            self._table.remove(held)
            if not isinstance(error, OSError):  # the connection ended before it was accepted
                raise

    def _make_room(self, peer: str) -> str:
        """Close a connection for this newcomer where there are no more; or say why it gets none."""
        why = self._table.problem(peer)
        if why and (held := self._table.gives_way(peer)):
            log.warning("a connection of %s without a token was closed for another: %s", held.peer, why)
            self._table.remove(held)
            held.close()
            return ""
        return why

    async def _connect(self, taken: socket.socket, held: Held) -> None:
        loop = asyncio.get_running_loop()
        connection = ClientConnection(
            config=self.config,
            server_state=self.server_state,
            app_state={**self.lifespan.state, ON_GOOD_TOKEN: partial(self._table.trust, held)},
            limits=self._limits,
            on_lost=partial(self._table.remove, held),
        )
        held.close = connection.abort
        await loop.connect_accepted_socket(lambda: connection, taken)


def _refuse(taken: socket.socket, why: str) -> None:
    """Send one sentence, as much of it as can be sent without waiting."""
    status = HTTPStatus.SERVICE_UNAVAILABLE
    body = json.dumps(encode(Problem("unreachable", why, status.value), defaults=True)).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/problem+json\r\n"
        f"Content-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    )
    with taken, suppress(OSError):
        with suppress(BlockingIOError):
            taken.recv(1 << 16)  # unread input would reset the connection before the client has read our answer
        taken.send(head.encode() + body)
