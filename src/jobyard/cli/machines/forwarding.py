"""Port forwarding to a machine: how is a port of a task reached from here? A listener on loopback, and ssh's own -L."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

from jobyard.cli.local_ports import LOOPBACK, Forward, Say, listen
from jobyard.cli.machines.agent_words import agent_here, agent_there
from jobyard.cli.reaching import MachineTarget
from jobyard.errors import Unavailable, UserError

RUNS = b"jobyard task runs\n"  # of the agent's program; what a login prints before it is passed over
PIECE_BYTES = 1 << 16
LEAVE_SECONDS = 5.0
LINK_FAILED = 255  # of ssh


async def forward(target: MachineTarget, ports: Sequence[Forward], say: Say) -> int:
    """Until the task ends or the caller does. Raises UserError where a port here is taken, or the task has ended."""
    there = [_on_machine(target, port) for port in ports]
    with tempfile.TemporaryDirectory(prefix="yard-") as directory:
        sockets = [f"{directory}/{number}" for number in range(len(ports))]
        async with _program(_words(target, there, sockets)) as process:
            if not await _says_that_it_runs(process):
                return await process.wait() or 1  # and why stands on stderr
            async with AsyncExitStack() as stack:
                for port, outside, socket in zip(ports, there, sockets, strict=True):
                    way = partial(_carry, target, port, "" if not target.process.host else socket, outside, say)
                    server = await listen(port, way)
                    stack.callback(server.close)
                    local = server.sockets[0].getsockname()[1]
                    say(f"{LOOPBACK}:{local} is port {port.remote} of {target.name}; Ctrl-C ends it")
                code = await process.wait()
    if code == LINK_FAILED:
        raise Unavailable(f"the link to {target.unit.node} broke; the ports of {target.name} are no longer forwarded")
    raise UserError(f"{target.name} has ended; its ports are no longer forwarded")


def _on_machine(target: MachineTarget, port: Forward) -> int:
    """The port of the machine that leads there. Raises UserError where none does."""
    process = target.process
    outside = {inside: published for published, inside in process.ports}.get(port.remote)
    if process.own_network and outside is None:
        known = ", ".join(str(inside) for _, inside in process.ports)
        raise UserError(f"the container of {target.name} publishes no port {port.remote}; it has: {known}")
    found = outside or port.remote
    if not process.host and port.local == found:
        raise UserError(
            f"{target.name} runs on this machine: its port {port.remote} is {LOOPBACK}:{found} already; to have it "
            f"under another number too: OTHER:{port.remote}"
        )
    return found


def _words(target: MachineTarget, there: Sequence[int], sockets: Sequence[str]) -> list[str]:
    arguments = ["--until-end", target.process.attempt]
    if not target.process.host:
        return agent_here(target, arguments)
    # A connection of its own: in a shared one the forwards would outlive us.
    flags = ["-T", "-o", "ControlMaster=no", "-o", "ControlPath=none"]
    for socket, port in zip(sockets, there, strict=True):
        flags += ["-L", f"{socket}:{LOOPBACK}:{port}"]
    return agent_there(target, flags, arguments)


@asynccontextmanager
async def _program(words: Sequence[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Closing its stdin ends it."""
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    except FileNotFoundError:
        raise UserError(f"there is no {words[0]} on this machine; install openssh-client") from None
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _says_that_it_runs(process: asyncio.subprocess.Process) -> bool:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        if line == RUNS:
            return True
    return False


async def _carry(
    target: MachineTarget,
    port: Forward,
    socket: str,
    outside: int,
    say: Say,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """One connection, both ways; each end of one side is told to the other."""
    try:
        opening = asyncio.open_unix_connection(socket) if socket else asyncio.open_connection(LOOPBACK, outside)
        far_reader, far_writer = await opening
    except OSError as error:
        say(f"port {port.remote} of {target.name}: {error.strerror or error}")
        writer.close()
        return
    try:
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
    finally:
        far_writer.close()
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
    except OSError:  # one of them is gone, and so the other way ends too
        writer.close()
