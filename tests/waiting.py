"""Waiting: how does a test wait for what no event tells of, and for how long at the most?"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TypeVar

# Nothing takes so long, unless the machine is busy with something else: a limit costs nothing until it is reached.
PATIENCE_SECONDS = 120.0
LONG_PATIENCE_SECONDS = 400.0
POLL_SECONDS = 0.01
POLL_MOST_SECONDS = 0.2
T = TypeVar("T")


def until(look: Callable[[], T | None], seconds: float = PATIENCE_SECONDS) -> T:
    """The first true answer."""
    began = time.monotonic()
    while not (found := look()):
        assert time.monotonic() < began + seconds, "waited in vain"
        pause(began)
    return found


def pause(began: float) -> None:
    """Between two looks: the longer one has waited, the longer. Six workers that ask a server a hundred times a second
    would take the time from what they wait for."""
    waited = time.monotonic() - began
    time.sleep(min(POLL_MOST_SECONDS, max(POLL_SECONDS, waited / 20)))


def long_until(look: Callable[[], T]) -> T:
    """The same where processes are killed and started again."""
    return until(look, LONG_PATIENCE_SECONDS)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
