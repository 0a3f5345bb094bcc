"""Connections: who gets one, how long it is waited for, and what one caller may take."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from jobyard.errors import UserError, YardError
from jobyard.model.codec import decode
from jobyard.server import accepting
from jobyard.server import main as server_main
from jobyard.server.accepting import BoundedServer
from jobyard.server.bounds import Bounded
from jobyard.server.limits import Limits, limits_of
from jobyard.server.problems import problem
from jobyard.settings import ServerKnobs, knobs
from jobyard.wire.views import Problem
from tests.waiting import PATIENCE_SECONDS

LIMITS = Limits(connections_most=8, connections_per_peer=4, body_bytes_most=1 << 20)
AT_ONCE = 0.01  # of a timeout that a test waits for


@dataclass
class Served:
    """A little app on a Unix socket: `/` tells how long the body was, `/watch` goes on until it is told to end."""

    path: str
    server: BoundedServer
    end: asyncio.Event
    bodies: list[int]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self.path)

    async def ask(self, request: bytes) -> bytes:
        """All that comes until the connection is closed."""
        reader, writer = await self.connect()
        writer.write(request)
        return await rest_of(reader, writer)

    @property
    def connections(self) -> int:
        return len(self.server.server_state.connections)

    async def until(self, connections: int) -> None:
        while self.connections != connections:  # noqa: ASYNC110  uvicorn has no event for it
            await asyncio.sleep(0.001)


async def rest_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """What comes until the other side closes, in good order or not."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@asynccontextmanager
async def served(directory: Path, limits: Limits = LIMITS) -> AsyncIterator[Served]:
    end, bodies = asyncio.Event(), list[int]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def forever() -> AsyncIterator[bytes]:
            yield b"begin\n"
            await end.wait()

        async def without_end() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 65536
                await asyncio.sleep(0)

        answer: Any
        if scope["path"] == "/watch":
            answer = StreamingResponse(forever())
        elif scope["path"] == "/without-end":
            answer = StreamingResponse(without_end())
        else:
            try:
                bodies.append(len(await Request(scope, receive).body()))
                answer = PlainTextResponse(f"{bodies[-1]} bytes")
            except YardError as error:
                answer = problem(error.code, str(error), error.http_status)
        await answer(scope, receive, send)

    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(directory / "s"))
    bound.listen(128)
    options: Any = {"log_config": None, "access_log": False, "lifespan": "off", "timeout_graceful_shutdown": 1}
    server = BoundedServer(uvicorn.Config(Bounded(app, limits), **options), limits)
    serving = asyncio.create_task(server.serve([bound]))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield Served(str(directory / "s"), server, end, bodies)
    finally:
        end.set()
        server.should_exit = server.force_exit = True
        await serving


GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
WATCH = b"GET /watch HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_a_client_that_sends_half_a_header_is_closed(tmp_path: Path) -> None:
    async with served(tmp_path, replace(LIMITS, header_seconds=AT_ONCE)) as yard:
        assert await yard.ask(b"GET / HTTP/1.1\r\nHost") == b""
        assert await yard.ask(b"") == b""
        await yard.until(connections=0)


async def test_a_header_has_one_deadline_that_single_bytes_do_not_move(tmp_path: Path) -> None:
    async with served(tmp_path, replace(LIMITS, header_seconds=0.1)) as yard:
        reader, writer = await yard.connect()
        writer.write(b"GET / HTTP/1.1\r\n")

        async def drip() -> None:
            while True:
                writer.write(b"x: y\r\n")
                await asyncio.sleep(0.005)

        dripping = asyncio.create_task(drip())
        assert await rest_of(reader, writer) == b""
        dripping.cancel()


async def test_a_second_request_that_is_half_sent_is_closed_too(tmp_path: Path) -> None:
    async with served(tmp_path, replace(LIMITS, header_seconds=0.05)) as yard:
        told = await yard.ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHo")
        assert told.endswith(b"0 bytes")


async def test_a_connection_without_a_request_is_closed_after_its_idle_time(tmp_path: Path) -> None:
    async with served(tmp_path, replace(LIMITS, keep_alive_seconds=AT_ONCE)) as yard:
        assert (await yard.ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).endswith(b"0 bytes")


async def test_a_body_that_stops_is_not_waited_for(tmp_path: Path) -> None:
    async with served(tmp_path, replace(LIMITS, body_seconds=AT_ONCE)) as yard:
        assert await yard.ask(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf") == b""
        await yard.until(connections=0)
        assert yard.bodies == []


async def test_who_waits_for_a_stream_is_not_taken_for_idle(tmp_path: Path) -> None:
    limits = replace(LIMITS, header_seconds=AT_ONCE, body_seconds=AT_ONCE, keep_alive_seconds=AT_ONCE)
    async with served(tmp_path, limits) as yard:
        reader, writer = await yard.connect()
        writer.write(WATCH.replace(b"Host", b"Connection: close\r\nHost"))
        await reader.readuntil(b"begin\n")
        await asyncio.sleep(5 * AT_ONCE)  # past every deadline
        yard.end.set()
        assert await reader.read() == b"\r\n0\r\n\r\n"
        writer.close()


async def test_a_client_that_reads_nothing_stops_the_sender_and_is_closed(tmp_path: Path) -> None:
    async with served(tmp_path, replace(LIMITS, stall_seconds=0.05)) as yard:
        with socket.socket(socket.AF_UNIX) as silent:
            silent.connect(yard.path)
            silent.sendall(b"GET /without-end HTTP/1.1\r\nHost: x\r\n\r\n")
            await yard.until(connections=1)
            (connection,) = yard.server.server_state.connections
            while yard.connections:
                transport: Any = connection.transport
                assert transport.get_write_buffer_size() < 1 << 18
                await asyncio.sleep(0.001)


async def test_one_peer_has_no_more_connections_than_its_share(tmp_path: Path) -> None:
    async with served(tmp_path) as yard:
        held = [await yard.connect() for _ in range(4)]
        await yard.until(connections=4)
        told = await yard.ask(GET)
        assert told.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"the yard's socket has 4 open connections already; close some, or try again" in told
        assert decode(Problem, json.loads(told.partition(b"\r\n\r\n")[2])).code == "unreachable"
        assert told.endswith(b'"status": 503, "field": ""}'), "as /openapi.json declares it"
        held.pop()[1].close()
        await yard.until(connections=3)
        assert (await yard.ask(GET)).endswith(b"0 bytes")
        for _, writer in held:
            writer.close()


async def test_one_caller_keeps_a_connection_for_its_commands(tmp_path: Path) -> None:
    async with served(tmp_path) as yard:
        streams = [await yard.connect() for _ in range(3)]
        for reader, writer in streams:
            writer.write(WATCH)
            await reader.readuntil(b"begin\n")
        told = await yard.ask(WATCH.replace(b"Host", b"Connection: close\r\nHost"))
        assert told.startswith(b"HTTP/1.1 429 ")
        assert b"you have 3 streams of this yard open already" in told
        assert (await yard.ask(GET)).endswith(b"0 bytes")
        for _, writer in streams:
            writer.close()


LONG = LIMITS.body_bytes_most + 1
TELLS_LENGTH = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % LONG
IN_CHUNKS = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


CHUNKS = b"%x\r\n" % LONG + b"x" * LONG + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "request_", [TELLS_LENGTH, TELLS_LENGTH + b"x" * LONG, IN_CHUNKS + CHUNKS], ids=["head", "whole", "chunks"]
)
async def test_a_body_that_is_too_large_gets_one_sentence(tmp_path: Path, request_: bytes) -> None:
    """Also to a sender that reads only when it has sent all: the rest is read and thrown away."""
    async with served(tmp_path, replace(LIMITS, header_seconds=0.1, body_seconds=0.1)) as yard:
        told = await yard.ask(request_)
        assert told.startswith(b"HTTP/1.1 413 ")
        assert b"the request has more than 1 MiB, which is all that is taken; split the job" in told
        assert yard.bodies == []


async def test_a_body_of_just_the_largest_size_is_taken(tmp_path: Path) -> None:
    most = LIMITS.body_bytes_most
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % most
    async with served(tmp_path) as yard:
        assert (await yard.ask(head + b"x" * most)).endswith(b"%d bytes" % most)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_without_descriptors_it_looks_once_in_a_pause_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    monkeypatch.setattr(accepting, "ACCEPT_PAUSE_SECONDS", 0.01)
    loop, tries = asyncio.get_running_loop(), 0
    accept = loop.sock_accept

    async def sock_accept(listener: socket.socket) -> Any:
        nonlocal tries
        tries += 1
        if tries <= 3:
            raise OSError(number, os.strerror(number))
        return await accept(listener)

    monkeypatch.setattr(loop, "sock_accept", sock_accept)
    with caplog.at_level(logging.ERROR):
        async with served(tmp_path) as yard:
            assert (await yard.ask(GET)).endswith(b"0 bytes")
    assert [record.getMessage() for record in caplog.records] == [
        f"no connection can be accepted now: {os.strerror(number)}"
    ] * 3


@pytest.mark.parametrize("error", [OSError(errno.EIO, "odd"), ValueError("odd")])
async def test_an_error_that_nobody_thought_of_leaves_the_server_listening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    monkeypatch.setattr(accepting, "ACCEPT_PAUSE_SECONDS", 0.01)
    loop, errors = asyncio.get_running_loop(), [error]
    accept = loop.sock_accept

    async def sock_accept(listener: socket.socket) -> Any:
        if errors:
            raise errors.pop()
        return await accept(listener)

    monkeypatch.setattr(loop, "sock_accept", sock_accept)
    async with served(tmp_path) as yard:
        assert (await yard.ask(GET)).endswith(b"0 bytes")
        assert not yard.server.should_exit
    assert "odd" in caplog.text


async def test_a_connection_that_cannot_be_made_is_closed_and_counted_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "ACCEPT_PAUSE_SECONDS", 0.01)

    def broken(**_: Any) -> Any:
        monkeypatch.undo()
        raise TypeError("odd")

    monkeypatch.setattr(accepting, "ClientConnection", broken)
    async with served(tmp_path, replace(LIMITS, connections_per_peer=1)) as yard:
        assert await yard.ask(GET) == b""
        assert (await yard.ask(GET)).endswith(b"0 bytes")


async def test_a_server_whose_listener_is_gone_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, asked = asyncio.get_running_loop(), asyncio.Event()

    async def sock_accept(listener: socket.socket) -> Any:
        asked.set()
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(loop, "sock_accept", sock_accept)
    async with served(tmp_path) as yard:
        await asked.wait()
        await asyncio.gather(*yard.server._accepting, return_exceptions=True)
        await asyncio.sleep(0)  # its callbacks
        assert yard.server.should_exit


def test_connections_leave_descriptors_for_the_rest() -> None:
    for descriptors in (64, 256, 1024, 65536):
        both = [limits_of(ServerKnobs(), descriptors, is_tcp=is_tcp) for is_tcp in (False, True)]
        # Each connection has a descriptor, and each stream may read a file.
        held = sum(each.connections_most * 7 // 4 for each in both)
        assert held <= descriptors * 7 // 8
        assert both[1].connections_per_peer < both[1].connections_most


def test_limits_are_knobs() -> None:
    found = knobs(
        ServerKnobs, {"YARD_HEADER_SECONDS": "3", "YARD_CONNECTIONS_PER_PEER": "5", "YARD_BODY_MIB_MOST": "2"}
    )
    limits = limits_of(found, 4096, is_tcp=True)
    assert (limits.header_seconds, limits.connections_per_peer, limits.body_bytes_most) == (3.0, 5, 2 << 20)
    for bad in ("0", "-1", "1.5", "²", "many", "9" * 30):
        with pytest.raises(UserError, match="is not a whole number; unset it or write 1 or more"):
            knobs(ServerKnobs, {"YARD_BODY_MIB_MOST": bad})


def test_the_socket_appears_when_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "0123456789abcdef.sock"
    path.touch()  # of a server that was killed
    was_there: list[bool] = []
    listen = socket.socket.listen

    def watched(made: socket.socket, most: int) -> None:
        was_there.append(path.exists())
        listen(made, most)

    monkeypatch.setattr(socket.socket, "listen", watched)
    with server_main._unix_socket(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    assert was_there == [False]
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
