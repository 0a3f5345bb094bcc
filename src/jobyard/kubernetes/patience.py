"""Retries and timeouts: how often is a cluster asked that does not answer, and how long is each answer awaited?"""

from __future__ import annotations

from typing import NamedTuple


class Patience(NamedTuple):
    tries: int
    answer_seconds: float
    connect_seconds: float


SERVERS = Patience(5, 30.0, 10.0)  # nobody sits at a terminal, and what is given up is somebody's job
CALLERS = Patience(1, 60.0, 30.0)  # who asked can ask again
