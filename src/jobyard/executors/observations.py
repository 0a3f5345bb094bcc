"""Observations of one machine: what do its agent's reports become, by which clock, and what has to come first?"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

from jobyard.executors.machine_room import MachineRoom
from jobyard.executors.reports import Reports, progress_of
from jobyard.executors.result_collector import ResultCollector
from jobyard.model.events import AttemptsFinished, AttemptsStarted, AttemptsWithdrawn, Event, Finished, Started
from jobyard.model.job import Reason
from jobyard.model.task import AttemptId, Outcome

CLOCK_SECONDS = 1.0  # clocks that differ by less count as the same


class Observations:
    """Reads checked messages. `tell` gets their events; with `collector`, an end comes after the attempt's results."""

    def __init__(
        self, room: MachineRoom, tell: Callable[[list[Event]], None], collector: ResultCollector | None
    ) -> None:
        self._room = room
        self._tell = tell
        self._collector = collector
        self._reports = Reports()
        self._ahead_seconds = 0.0  # how far its clock is ahead of ours

    def connected(self, welcome: dict[str, Any], asked_at: float) -> None:
        """An agent has answered, maybe a new one. Every milestone is reported again.

        Its clock may be hours off; what it tells is told by ours. A small difference may be the link's and stays.
        """
        now = time.time()
        ahead = welcome.get("now", now) - (asked_at + now) / 2
        is_off = self._collector is not None and abs(ahead) > CLOCK_SECONDS + now - asked_at
        self._ahead_seconds = ahead if is_off else 0.0
        self._reports.forget()

    def attempts(self, message: dict[str, Any]) -> None:
        finished = message.get("finished", ())
        events = self._room.without_given_back(_attempt_events(message, self._ahead_seconds))
        self._reports.ended(AttemptId.parse(name) for name, _ in finished)
        if self._collector is None or not finished:
            self._tell(events)
        else:
            self._collector.ended(events, finished)

    def progress(self, message: dict[str, Any]) -> None:
        self._tell(self._reports.read(message, self._ahead_seconds, time.time()))

    def measured(self, message: dict[str, Any], ours: Collection[int]) -> None:
        """`ours` are the devices on which this yard has a slot now."""
        self._tell(self._room.measured(message, ours, time.time()))


def _attempt_events(message: dict[str, Any], ahead: float) -> list[Event]:
    """In the time of our own clock. The agent's is `ahead` of it."""
    now = time.time()
    events: list[Event] = []
    if started := message.get("started"):
        events.append(AttemptsStarted(tuple(Started(AttemptId.parse(name), at - ahead) for name, at in started), now))
    if finished := message.get("finished"):
        items = tuple(Finished(AttemptId.parse(name), _outcome(seen, ahead)) for name, seen in finished)
        events.append(AttemptsFinished(items, now))
    if withdrawn := message.get("withdrawn"):
        events.append(AttemptsWithdrawn(tuple(AttemptId.parse(name) for name in withdrawn), now))
    return events


def _outcome(seen: dict[str, Any], ahead: float) -> Outcome:
    reason = seen.get("reason")
    started_at = seen["started_at"] - ahead
    return Outcome(
        started_at,
        max(started_at, seen["finished_at"] - ahead),  # its clock may have been set back meanwhile
        seen.get("exit_code"),
        seen.get("signal"),
        Reason(reason) if reason else None,
        seen.get("message") or "",
        seen.get("peak_memory_mib") or 0,
        seen.get("peak_gpu_memory_mib") or 0,
        progress_of(seen["progress"], ahead) if seen.get("progress") else None,
    )
