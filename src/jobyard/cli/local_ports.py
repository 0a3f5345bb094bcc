"""Local ports: on which ports of this machine are forwarded connections taken? On loopback alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from jobyard.errors import UserError

LOOPBACK = "127.0.0.1"
Say = Callable[[str], None]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Forward(NamedTuple):
    local: int  # 0: any that is free
    remote: int


async def listen(port: Forward, serve: Serve) -> asyncio.Server:
    """Raises UserError where the port here is taken."""
    try:
        return await asyncio.start_server(serve, LOOPBACK, port.local)
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(f"port {port.local} cannot be used here: {why}; choose another: OTHER:{port.remote}") from error
