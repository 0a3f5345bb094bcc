"""Step times: how many steps has this attempt done, and how long does one take?"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobyard.sdk.spool import Record


class StepTimes:
    """Counts steps and the time inside epochs; time between epochs does not count. The caller says how late it is."""

    def __init__(self, now: float) -> None:
        self.steps = 0
        self.last = now  # when the last step was done
        self.is_in_epoch = False
        self._epoch_began = now
        self._epoch_first = 0  # steps that were done before this epoch
        self._timed_from = 0  # steps before this one have no known duration in this epoch
        self._timed_steps = 0  # of earlier epochs of this attempt, and how long they took
        self._timed_seconds = 0.0

    @property
    def steps_in_epoch(self) -> int:
        return self.steps - self._epoch_first

    @property
    def mean_seconds(self) -> float:
        """Mean seconds of a step of this attempt; 0 while none has been timed."""
        steps, seconds = self._timed_steps, self._timed_seconds
        if self.is_in_epoch:
            steps, seconds = steps + self.steps - self._timed_from, seconds + self.last - self._epoch_began
        return seconds / steps if steps > 0 else 0.0

    def start_epoch(self, now: float, *, first_step_is_done: bool = False) -> None:
        self.is_in_epoch = True
        self.last = self._epoch_began = now
        self._epoch_first = self.steps - first_step_is_done
        self._timed_from = self.steps

    def end_epoch(self, now: float) -> Record:
        """The part of the epoch's report that is about its steps."""
        timed = max(0, self.steps - self._timed_from)
        seconds = self.last - self._epoch_began if timed else 0.0
        times: Record = {
            "seconds": round(now - self._epoch_began, 6),
            "steps": self.steps_in_epoch,
            "step_seconds": round(seconds / timed, 9) if timed else 0.0,
        }
        self.is_in_epoch = False
        self._timed_steps += timed
        self._timed_seconds += seconds
        self._epoch_began, self._epoch_first, self._timed_from = now, self.steps, self.steps
        return times
