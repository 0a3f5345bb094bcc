"""Reports of training, and measured use: what do they mean for the yard?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from jobyard.model.codec import decode
from jobyard.model.events import AttemptsMeasured, AttemptsProgressed, Event, Progressed, Used
from jobyard.model.task import AttemptId
from jobyard.model.training import Epoch, Progress

SAVED_SECONDS = 10.0  # a checkpoint that covers no further epoch is written down at most so often
_FIELDS = frozenset(field.name for field in fields(Progress)) - {"adds_history"}


class Reports:
    """Reads the `progress` messages of one machine. Milestones are journalled; steps between them are not."""

    def __init__(self) -> None:
        self._written: dict[AttemptId, tuple[float, Progress, Epoch | None]] = {}  # the last, with its last epoch

    def forget(self) -> None:
        """After a new connection every milestone is reported again."""
        self._written.clear()

    def read(self, message: dict[str, Any], ahead: float, at: float) -> list[Event]:
        milestones: list[Progressed] = []
        between: list[Progressed] = []
        for name, seen in message["attempts"].items():
            attempt, progress = AttemptId.parse(name), progress_of(seen, ahead)
            if self._is_milestone(attempt, progress, at):
                milestones.append(Progressed(attempt, self._since_last(attempt, progress, at)))
            else:
                between.append(Progressed(attempt, progress))
        events: list[Event] = [AttemptsProgressed(tuple(milestones), at)] if milestones else []
        return [*events, AttemptsMeasured(at, tuple(between))] if between else events

    def _is_milestone(self, attempt: AttemptId, progress: Progress, at: float) -> bool:
        if attempt not in self._written:
            return True
        written_at, written, _ = self._written[attempt]
        if written.saved_at and at - written_at < SAVED_SECONDS:
            progress = replace(progress, saved_at=written.saved_at)
        return progress.milestones != written.milestones

    def _since_last(self, attempt: AttemptId, progress: Progress, at: float) -> Progress:
        """Without epochs that are in the journal already: a full history each time would fill it."""
        history = progress.history
        _, _, last = self._written.get(attempt, (0.0, progress, None))
        self._written[attempt] = at, replace(progress, history=()), history[-1] if history else last
        if last is None or last not in history:
            return progress
        is_older = len(history) - history[::-1].index(last)
        return replace(progress, history=history[is_older:], adds_history=True)

    def ended(self, attempts: Iterable[AttemptId]) -> None:
        if self._written:
            for attempt in attempts:
                self._written.pop(attempt, None)


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
