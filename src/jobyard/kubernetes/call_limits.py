"""Call limits: how often is a cluster asked that does not answer, and how long is each answer awaited?"""

from __future__ import annotations

from typing import NamedTuple


class CallLimits(NamedTuple):
    tries: int
    answer_seconds: float
    connect_seconds: float


SERVERS = CallLimits(5, 30.0, 10.0)  # no user waits, and giving up would fail a job
CALLERS = CallLimits(1, 60.0, 30.0)  # a user waits, and can try again
