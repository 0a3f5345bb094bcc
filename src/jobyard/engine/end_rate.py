"""Rate of ends: how fast do the tasks of a job end, as seen of late, and how long will the rest take (ETA)?"""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_SECONDS = 15.0  # what is measured is this old at least before it is forgotten,
WINDOW_ENDS = 10  # and has so many ends: slow tasks are measured over hours
LEAST_ENDS = 3  # before anything is said
PAUSE_SECONDS = 30.0  # without any task; what was measured before says nothing about what comes after
SILENCE_SECONDS = 15.0  # of silence beyond what is usual, and then nothing is said


@dataclass(slots=True)
class EndRate:
    """Counts of two windows, the present one and the one before. Measured, not kept."""

    began_at: float | None = None  # of the window before
    turned_at: float = 0.0  # when the present one began
    before: int = 0
    present: int = 0
    last_at: float = 0.0

    def begin(self, at: float) -> None:
        """A task runs, and none did: it goes on after a short gap, and begins anew after a pause."""
        if self.began_at is None or at - self.last_at > PAUSE_SECONDS:
            self.began_at = self.turned_at = self.last_at = at
            self.before = self.present = 0

    def note_end(self, at: float, at_once: int) -> None:
        """One of `at_once` tasks that run together has ended."""
        if self.began_at is None:  # the server was started again meanwhile
            self.begin(at)
            return
        self.present += 1
        self.last_at = max(self.last_at, at)
        if at - self.turned_at >= WINDOW_SECONDS and self.present >= max(WINDOW_ENDS, at_once):
            self.began_at, self.turned_at = self.turned_at, at
            self.before, self.present = self.present, 0

    def seconds_left(self, tasks: int, at_once: int, now: float) -> float | None:
        """For so many more. None where it is not known: too few have ended, or none for too long."""
        ended = self.before + self.present
        if self.began_at is None or ended < max(LEAST_ENDS, at_once):
            return None
        each, silence = (self.last_at - self.began_at) / ended, now - self.last_at
        if silence > 2 * each * at_once + SILENCE_SECONDS:
            return None
        left = tasks * each - silence
        return left if left > 0 else None
