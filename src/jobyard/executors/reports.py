"""What do reports of training, and what attempts use, mean for the yard?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from jobyard.model.codec import decode
from jobyard.model.events import AttemptsMeasured, AttemptsProgressed, Event, Progressed, Used
from jobyard.model.task import AttemptId
from jobyard.model.training import Progress

_FIELDS = frozenset(field.name for field in fields(Progress))


class Reports:
    """Reads the `progress` messages of one machine. Milestones are journalled; steps between them are not."""

    def __init__(self) -> None:
        self._milestones: dict[AttemptId, tuple[object, ...]] = {}

    def forget(self) -> None:
        """Whoever forgot everything hears of every milestone anew."""
        self._milestones.clear()

    def read(self, message: dict[str, Any], ahead: float, at: float) -> list[Event]:
        milestones: list[Progressed] = []
        between: list[Progressed] = []
        for name, seen in message["attempts"].items():
            attempt, progress = AttemptId.parse(name), progress_of(seen, ahead)
            key = (progress.epochs_done, progress.epochs_total, progress.can_yield, progress.saved_at, progress.trouble)
            is_new = self._milestones.get(attempt) != key
            self._milestones[attempt] = key
            (milestones if is_new else between).append(Progressed(attempt, progress))
        events: list[Event] = [AttemptsProgressed(tuple(milestones), at)] if milestones else []
        return [*events, AttemptsMeasured(at, tuple(between))] if between else events

    def ended(self, attempts: Iterable[AttemptId]) -> None:
        if self._milestones:
            for attempt in attempts:
                self._milestones.pop(attempt, None)


def progress_of(seen: dict[str, Any], ahead: float) -> Progress:
    """In the time of our own clock, if theirs is `ahead` of it. What a newer agent tells beyond it is left out."""
    progress = decode(Progress, {name: value for name, value in seen.items() if name in _FIELDS}, "progress")
    return replace(progress, saved_at=progress.saved_at - ahead) if progress.saved_at else progress


def used(message: dict[str, Any], at: float) -> AttemptsMeasured | None:
    """What attempts use, out of a `measured` message; nothing where no GPU is in it."""
    found = [
        Used(AttemptId.parse(name), seen["memory_mib"], seen["gpu_memory_mib"], seen.get("gpu_percent"))
        for name, seen in message.get("attempts", {}).items()
        if seen.get("gpu_memory_mib") or seen.get("gpu_percent") is not None
    ]
    return AttemptsMeasured(at, used=tuple(found)) if found else None
