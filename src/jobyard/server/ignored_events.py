"""Ignored events: which observations have broken the state, so that they are ignored for a while?

By kind and subject: what a node measures is never the same twice, and each failure costs a reload from the disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from jobyard.model.events import Event

IGNORED_SECONDS = 600.0  # then it is tried again: its cause may be over
IGNORED_MOST = 1000
CALM_SECONDS = 10.0  # after so long without a failure, counting starts again
PAUSE_SECONDS = 1.0


class IgnoredEvents:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._last: float | None = None

    def add(self, event: Event) -> None:
        name = name_of(event)
        self._until.pop(name, None)
        self._until[name] = self._clock() + IGNORED_SECONDS
        while len(self._until) > IGNORED_MOST:
            del self._until[next(iter(self._until))]

    def __contains__(self, event: Event) -> bool:
        return bool(self._until) and self._until.get(name_of(event), 0.0) > self._clock()

    def __len__(self) -> int:
        return len(self._until)

    def pause(self) -> float:
        """How long to wait before going on: not at all after a first failure, a little after a second."""
        last, self._last = self._last, self._clock()
        return PAUSE_SECONDS if last is not None and self._last - last < CALM_SECONDS else 0.0


def name_of(event: Event) -> str:
    """Its kind and its subject, without its content."""
    for name in ("job", "slot", "node", "cluster", "config"):
        if (subject := getattr(event, name, None)) is not None:
            return f"{type(event).__name__} {getattr(subject, 'id', subject)}"
    parts = [part for name in ("items", "progressed", "used") for part in getattr(event, name, ())]
    attempts = [*getattr(event, "attempts", ()), *(part.attempt for part in parts)]
    return f"{type(event).__name__} {','.join(sorted({attempt.job for attempt in attempts}))}"
