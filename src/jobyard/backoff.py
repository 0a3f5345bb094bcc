"""Backoff (exponential): how long does a failed try wait before the next? Twice as long each time, up to a limit."""

from __future__ import annotations

from typing import NamedTuple

_DOUBLINGS_MOST = 60  # beyond that every pause is the longest one, and powers of two would only grow


class Backoff(NamedTuple):
    first_seconds: float
    longest_seconds: float

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures before this one."""
        return min(self.longest_seconds, self.first_seconds * 2.0 ** min(failures, _DOUBLINGS_MOST))
