"""Exec in a pod: how does a command run beside a task, with our terminal as its own?"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import aiohttp

from jobyard.cli.pods.connection import ReachedPod, reached
from jobyard.cli.reaching import Target
from jobyard.errors import Unavailable, UserError
from jobyard.kubernetes.channels import CLOSE, RESIZE, STATUS, STDERR, STDIN, STDOUT, V4, V5, exec_query, exit_code

PIECE_BYTES = 1 << 15
# Container runtimes say it in their own words, at the end of a long chain of causes.
_MISSING = re.compile(r'exec: "([^"]*)": (?:executable file not found|stat .*no such file)')


async def execute(target: Target, command: Sequence[str], *, with_input: bool, with_terminal: bool) -> int:
    """The command's own exit code. Raises UserError where it cannot be started."""
    async with reached(target) as pod:
        container = pod.container_in(await pod.look())
        streams = {"stdin": with_input, "tty": with_terminal, "stderr": not with_terminal}
        query = exec_query(command, container, stdout=True, **streams)
        async with pod.socket("exec", query, (V5, V4)) as socket:
            with _raw_terminal() if with_input and with_terminal else _as_it_is():
                return await _talk(pod, socket, with_input=with_input, with_terminal=with_terminal)


async def _talk(
    pod: ReachedPod, socket: aiohttp.ClientWebSocketResponse, *, with_input: bool, with_terminal: bool
) -> int:
    beside: list[asyncio.Task[None]] = []
    if with_input:
        beside.append(asyncio.create_task(_send_input(socket)))
    if with_terminal and sys.stdout.isatty():
        beside.append(asyncio.create_task(_send_sizes(socket)))
    try:
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == STATUS:
                return _code(pod, json.loads(data))
            if channel in (STDOUT, STDERR) and data:
                _write(sys.stdout.buffer if channel == STDOUT else sys.stderr.buffer, data)
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    raise Unavailable(f"the link to pod {pod.name} broke before the command ended; whether it still runs is not known")


def _code(pod: ReachedPod, status: dict[str, Any]) -> int:
    code = exit_code(status)
    if code is not None:
        return code
    message = str(status.get("message") or "the command could not be started")
    if missing := _MISSING.search(message):
        raise UserError(f"pod {pod.name}: its image has no program {missing[1]}; name another")
    raise UserError(f"pod {pod.name}: {message.replace('Internal error occurred: ', '')}")


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()


async def _send_input(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Send our stdin, to its end. Read in a daemon thread: it may wait at a terminal for ever."""
    pieces: asyncio.Queue[bytes] = asyncio.Queue(4)
    loop = asyncio.get_running_loop()

    def read() -> None:
        with suppress(RuntimeError, OSError):  # the loop has ended: nothing to read for
            while True:
                piece = os.read(0, PIECE_BYTES)
                if loop.is_closed():
                    return
                asyncio.run_coroutine_threadsafe(pieces.put(piece), loop).result()
                if not piece:
                    return

    threading.Thread(target=read, daemon=True, name="stdin").start()
    while piece := await pieces.get():
        await socket.send_bytes(bytes((STDIN,)) + piece)
    if socket.protocol == V5:
        await socket.send_bytes(bytes((CLOSE, STDIN)))


async def _send_sizes(socket: aiohttp.ClientWebSocketResponse) -> None:
    """The size of our terminal, now and whenever it changes."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    try:
        while True:
            columns, lines = shutil.get_terminal_size()
            size = json.dumps({"Width": columns, "Height": lines}).encode()
            await socket.send_bytes(bytes((RESIZE,)) + size)
            await changed.wait()
            changed.clear()
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Each key is sent unchanged, Ctrl-C too. Afterwards the terminal is restored."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield
