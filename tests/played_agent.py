"""Played agent: what does a machine executor say to its agent, and do when a test answers for it?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from jobyard.agent_protocol.lines import LARGEST_LINE
from jobyard.executors.machines import MachineExecutor
from tests.waiting import PATIENCE_SECONDS

WELCOME: dict[str, Any] = {"ev": "welcome", "protocol": 1, "pid": 7, "build": "b", "boot_id": "x"}
WELCOME |= {"cpu_millis": 1000, "memory_mib": 1000, "devices": []}


class PlayedAgent:
    """A transport to an agent that welcomes each server; the rest is for the test to say."""

    build = "b"
    address = sees_us_as = ""

    def __init__(self, directory: Path, **welcome: Any) -> None:
        self._path = directory / "agent.sock"
        self._welcome = {**WELCOME, **welcome}
        self.heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.links: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()  # one for each connection
        self.trees: list[tuple[str, Path]] = []  # that were sent

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(str(self._path), limit=LARGEST_LINE)

    async def send_snapshot(self, snapshot: str, tar: Path) -> None:
        self.trees.append((snapshot, tar))

    async def next(self, operation: str) -> dict[str, Any]:
        """The next message of this kind."""
        while (message := await self.heard.get())["op"] != operation:
            pass
        return message

    @asynccontextmanager
    async def linked(self, executor: MachineExecutor) -> AsyncIterator[None]:
        """While it runs."""
        server = await asyncio.start_unix_server(self._serve, str(self._path))
        running = asyncio.create_task(executor.run())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said(self._welcome))
        self.links.put_nowait(writer)
        while line := await reader.readline():
            self.heard.put_nowait(json.loads(line))
        writer.close()


def said(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


class Wire:
    """As much of a StreamWriter as a link needs."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.messages += map(json.loads, data.splitlines())

    def close(self) -> None:
        self.is_closed = True
