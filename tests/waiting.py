"""Waiting: how does a test wait for what no event tells of, and for how long at the most?"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 60.0
LONG_PATIENCE_SECONDS = 240.0  # nothing takes so long, unless the machine is busy with something else
POLL_SECONDS = 0.01
T = TypeVar("T")


def until(look: Callable[[], T | None], seconds: float = PATIENCE_SECONDS) -> T:
    """The first true answer."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(POLL_SECONDS)
    return found


def long_until(look: Callable[[], T]) -> T:
    """The same where processes are killed and started again."""
    return until(look, LONG_PATIENCE_SECONDS)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
