"""Agent link: how are lines of JSON exchanged with one machine's agent, and does the connection hold?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from jobyard.agent_protocol import lines
from jobyard.backoff import Backoff
from jobyard.errors import Unavailable
from jobyard.executors.heard import welcome_problem

PROTOCOL = 1
BACKOFF = Backoff(0.05, 5.0)  # between two tries to reach an agent
WELCOME_SECONDS = 20.0


class Transport(Protocol):
    """A way to reach one machine's agent."""

    build: str
    address: str  # by which other machines reach it, once connected; empty: not known
    sees_us_as: str  # by which it would reach this machine

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises Unavailable with a sentence."""

    async def send_snapshot(self, snapshot: str, tar: Path) -> None:
        """Bring a tree to the machine. Raises Unavailable, or Rejected when it cannot be put there.

        Never asked of a machine that shares our disk.
        """


class AgentLink:
    """The connection to one agent, and its state. What is sent while there is none is lost."""

    def __init__(self, hello: Mapping[str, Any]) -> None:
        self._hello = {"op": "hello", "protocol": PROTOCOL, **hello}
        self._writer: asyncio.StreamWriter | None = None
        self._announced = False  # what the agent believes of pending work
        self.pid: int | None = None
        self.build = ""
        self.problem = ""

    @property
    def is_up(self) -> bool:
        return self._writer is not None

    async def greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_busy: bool
    ) -> dict[str, Any]:
        """The agent's first words. Nothing else is sent to it before `open`. Raises Unavailable, or TimeoutError."""
        self._announced = is_busy
        writer.write(line({**self._hello, "pending": is_busy}))
        async with asyncio.timeout(WELCOME_SECONDS):  # not wait_for: in Python 3.11 it may swallow a cancellation
            welcome = await read(reader)
        if welcome is None or welcome.get("ev") != "welcome" or welcome.get("protocol") != PROTOCOL:
            raise Unavailable(f"the agent answers in another language: {str(welcome)[:100]}")
        if wrong := welcome_problem(welcome):
            raise Unavailable(f"the agent says of its machine what cannot be: {wrong}")
        return welcome

    def open(self, writer: asyncio.StreamWriter, welcome: Mapping[str, Any]) -> None:
        """From now on messages are sent as soon as they are written."""
        self._writer = writer
        self.pid, self.build, self.problem = welcome["pid"], welcome["build"], ""

    def closed(self) -> None:
        self._writer = None
        self.pid = None

    def drop(self) -> None:
        """Close it, so that it is made again."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def send(self, message: Mapping[str, Any]) -> None:
        if self._writer is not None:
            self._writer.write(line(message))

    def write(self, lines: bytes) -> None:
        """Send messages that are encoded already."""
        if self._writer is not None:
            self._writer.write(lines)

    def announce(self, is_busy: bool) -> None:
        """Let the agent know whether work is pending, where it believes otherwise."""
        if self._writer is not None and is_busy != self._announced:
            self._announced = is_busy
            self.send({"op": "pending", "value": is_busy})


def line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


async def read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next message; None: the connection has ended. Raises ValueError where it is none."""
    try:
        line = await reader.readline()
    except ValueError:
        raise ValueError(f"the agent sent {lines.TOO_LONG}") from None
    if not line.endswith(b"\n"):
        return None
    try:
        message = json.loads(line)
    except (RecursionError, ValueError):
        raise ValueError(f"the agent said {line[:100]!r}") from None
    if not isinstance(message, dict):
        raise ValueError(f"the agent said {line[:100]!r}")
    if problem := lines.problem(line, message):
        raise ValueError(f"the agent sent {problem}")
    return message
