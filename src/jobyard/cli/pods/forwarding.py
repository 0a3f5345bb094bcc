"""Port forwarding: how is a port of a pod reached from here? A listener on loopback, a websocket per connection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

import aiohttp

from jobyard.cli.local_ports import LOOPBACK, Forward, Say, listen
from jobyard.cli.pods.connection import ReachedPod, reached
from jobyard.cli.reaching import Target
from jobyard.errors import UserError, YardError
from jobyard.kubernetes.channels import V4

DATA, ERROR = 0, 1
PORT_BYTES = 2  # the first message of each channel repeats the port's number
PIECE_BYTES = 1 << 16


async def forward(target: Target, ports: Sequence[Forward], say: Say) -> int:
    """Until the pod ends or the caller does. Raises UserError where a port here is taken, or the pod is gone."""
    async with reached(target) as pod, AsyncExitStack() as open_servers:
        await pod.look()
        for port in ports:
            server = await _listen(pod, port, say)
            await open_servers.enter_async_context(server)
            local = server.sockets[0].getsockname()[1]
            say(f"{LOOPBACK}:{local} is port {port.remote} of pod {pod.name}; Ctrl-C ends it")
        await pod.end()
        await pod.look()  # tells how it ended
        raise UserError(f"pod {pod.name} of {target.name} is gone; its ports are no longer forwarded")


async def _listen(pod: ReachedPod, port: Forward, say: Say) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _carry(pod, port.remote, reader, writer, say)
        except YardError as error:
            say(str(error))
        except OSError:
            pass  # the local client is gone
        finally:
            writer.close()

    return await listen(port, serve)


async def _carry(
    pod: ReachedPod, remote: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, say: Say
) -> None:
    """One connection, both ways. It ends when the pod's side ends: a websocket cannot signal the end of our input."""
    async with pod.socket("portforward", [("ports", str(remote))], (V4,)) as socket:
        sending = asyncio.create_task(_send(socket, reader, writer))
        receiving = asyncio.create_task(_receive(socket, writer))
        try:
            await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            if receiving.done() and (problem := receiving.result()):
                say(f"port {remote} of pod {pod.name}: {problem}")
        finally:
            for task in (sending, receiving):
                task.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)


async def _send(
    socket: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Returns only when the local side is closed: after its input ends it may still read the answer."""
    while piece := await reader.read(PIECE_BYTES):
        await socket.send_bytes(bytes((DATA,)) + piece)
    with suppress(OSError):
        await writer.wait_closed()


async def _receive(socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> str:
    """The error in the pod; empty: its output has ended."""
    is_first = {DATA: True, ERROR: True}
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data or message.data[0] not in is_first:
            continue
        channel, data = message.data[0], message.data[1:]
        if is_first[channel]:
            is_first[channel], data = False, data[PORT_BYTES:]
        if channel == ERROR and data:
            return str(data.decode(errors="replace").strip())
        if data:
            writer.write(data)
            await writer.drain()
    return ""
