"""Saved epochs: which finished epochs are in a checkpoint, as far as the script tells?"""

from __future__ import annotations

from time import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobyard.sdk.spool import Record


class SavedEpochs:
    """Holds the reports of finished epochs back until they are saved: the yard counts a reported epoch as saved."""

    def __init__(self, done: int) -> None:
        self.are_told = False  # the script calls `saved()`; otherwise an epoch counts as saved when the next one begins
        self.count = done  # epochs in the newest checkpoint that was told of
        self._has_saved = False
        self._saved_step = -1  # steps done when a checkpoint was complete, if that was in this epoch
        self._saved_seconds: float | None = None
        self._held: list[Record] = []  # epochs that are over, but perhaps not saved yet

    def include(self, done: int) -> bool:
        return not self.are_told or self.count >= done

    def start_epoch(self) -> None:
        self._saved_step = -1

    def end_epoch(self, record: Record, done: int, steps: int) -> list[Record]:
        """What may be reported now that this epoch is over, after so many steps."""
        self._held.append(record)
        saved_step, self._saved_step = self._saved_step, -1
        if not self._has_saved:
            return []
        return [*self.take_held(), self._record(done)] if saved_step == steps else self.take_held()

    def save(self, done: int, step: int, seconds: float | None) -> list[Record]:
        """A checkpoint is complete, after this step of an epoch (-1: between two epochs). What may be reported now."""
        self.are_told = self._has_saved = True
        self._saved_step, self._saved_seconds = step, seconds
        return [*self.take_held(), self._record(done)]

    def take_unless_told(self) -> list[Record]:
        """Of a script that never calls `saved()`: it goes on, so its last epoch counts as saved."""
        return [] if self.are_told else self.take_held()

    def take_held(self) -> list[Record]:
        held, self._held = self._held, []
        return held

    def _record(self, done: int) -> Record:
        self.count = done
        return {"t": "saved", "at": time(), "done": done, "seconds": self._saved_seconds}
