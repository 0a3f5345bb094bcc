"""Progress reducer: what do the reports in a spool add up to?

A spool is JSON lines that a task appends: `hello`, `start`, `steps`, `epoch`, `saved`, `yield`, `progress`. For clients
of other protocols the report endpoint writes `asked` (has it to stop?) and `told` (yes), `ended` (an epoch is over, and
may not be saved yet) and `end`.
"""

from __future__ import annotations

from typing import Any, Callable, ClassVar, Dict, Optional, Sequence

from jobyard.agent_protocol.epoch_asks import Asks, Lap
from jobyard.agent_protocol.epoch_counts import EpochCount, EpochHistory, UnsavedEpoch
from jobyard.agent_protocol.report_lines import (
    ReportLines,
    Unreadable,
    is_number,
    number_in,
    number_or_none,
    process_of,
    readable,
)

_MOST_METRICS = 64
_LONGEST_NAME = 100


class StepCount:
    """Steps of the attempt, and the mean time of one."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.has_own_seconds = False  # told with the steps, not only at the end of an epoch


class ProgressReducer:
    """Takes the bytes of one spool, in any pieces, and knows at any time what they add up to. Never raises.

    A line without its newline waits for it. What cannot be read is skipped; `trouble` names the first of it.
    """

    def __init__(self, started_at: Optional[float] = None) -> None:
        self._started_at = started_at
        self._lines = ReportLines()
        self._epochs = EpochCount()
        self._history = EpochHistory()
        self._steps = StepCount()
        self._unsaved = UnsavedEpoch()
        self._asks = Asks()
        self._counts_epochs = False  # whoever asks also tells how many are done
        self._begun = 0  # epochs of this attempt that are over, by the asks of those who do not tell
        self._remembered = 0  # those of them that are in the history
        self._metrics: Dict[str, float] = {}
        self._values: Dict[str, Any] = {}  # fields of a progress that are levels by themselves
        self._has_any = False
        self.is_told = False  # the report endpoint has answered that it has to stop

    def feed(self, data: bytes) -> None:
        """The next bytes of the spool."""
        for report in self._lines.feed(data):
            self._take(report)

    def close(self) -> None:
        """Nothing more will come: a last line counts without its newline if it is whole."""
        for report in self._lines.close():
            self._take(report)

    def passed_over(self, size: int) -> None:
        """So many bytes are not looked at: there is too much. What follows begins within a line."""
        self._lines.passed_over(size)

    # Reports

    def _take(self, report: Dict[str, Any]) -> None:
        kind = report.get("t")
        if not isinstance(kind, str):
            self._lines.complain('has no "t" and was skipped')
        elif kind in self._TAKERS:  # what a newer SDK adds is not for us
            try:
                self._TAKERS[kind](self, report)
                self._has_any = True
            except Unreadable as error:
                self._lines.complain(str(error))

    def _hello(self, report: Dict[str, Any]) -> None:
        if report.get("yields"):  # first: what it says of itself holds whatever it counts
            self._values["can_yield"] = True
        total, done = number_or_none(report, "epochs"), number_or_none(report, "done")
        if total is not None and total > 0:
            self._epochs.total = int(total)
        if done is not None:  # said again when a checkpoint knows better than the yard
            self._epochs.at_start = self._count(done)

    def _start(self, report: Dict[str, Any]) -> None:
        at = number_in(report, "at")
        if self._started_at is not None and "restart_seconds" not in self._values:
            self._values["restart_seconds"] = round(max(0.0, at - self._started_at), 3)

    def _take_steps(self, report: Dict[str, Any]) -> None:
        steps, mean = number_in(report, "steps"), number_or_none(report, "step_seconds")
        self._steps.count = int(self._positive(steps, "steps"))
        if mean is not None:
            self._steps.seconds = self._positive(mean, "step_seconds")
            self._steps.has_own_seconds = True
        self._measure(report)

    def _epoch(self, report: Dict[str, Any]) -> None:
        done, seconds = self._count(number_in(report, "done")), number_or_none(report, "seconds") or 0.0
        steps, mean = number_or_none(report, "steps") or 0, number_or_none(report, "step_seconds")
        if mean is not None and not self._steps.has_own_seconds:
            self._steps.seconds = self._positive(mean, "step_seconds")
        metrics = self._measure(report)
        self._is_over(done, self._positive(seconds, "seconds"), int(self._positive(steps, "steps")), metrics)

    def _is_over(self, done: int, seconds: float, steps: int, metrics: Dict[str, float]) -> None:
        self._epochs.ended = done
        if done >= 1 and not self._history.ends_with(done):  # every rank may tell of it
            self._history.remember(done, seconds, steps, metrics)

    def _saved(self, report: Dict[str, Any]) -> None:
        done, seconds, at = number_in(report, "done"), number_or_none(report, "seconds"), number_in(report, "at")
        self._epochs.saved = self._count(done)
        self._values["saved_at"] = at
        if seconds is not None:
            self._values["checkpoint_seconds"] = self._positive(seconds, "seconds")

    def _yield(self, report: Dict[str, Any]) -> None:
        done = number_or_none(report, "done")
        self._values["can_yield"] = self._values["has_yielded"] = True
        if done is not None:
            self._epochs.ended = self._count(done)

    def _progress(self, report: Dict[str, Any]) -> None:
        percent, remaining = number_or_none(report, "percent"), number_or_none(report, "remaining")
        if percent is not None:
            self._values["percent"] = min(100.0, self._positive(percent, "percent"))
        if remaining is not None:
            self._values["remaining_seconds"] = self._positive(remaining, "remaining")
        self._measure(report)

    def _take_ended(self, report: Dict[str, Any]) -> None:
        for name in ("done", "seconds", "steps"):
            value = number_or_none(report, name)
            if value is not None:
                self._unsaved.add(name, self._positive(value, name))
        if report.get("done") is not None:
            self._counts_epochs = True
        elif not self._counts_epochs:
            self._asks.ended(process_of(report), self._unsaved.seconds, self._unsaved.steps)
            self._take_laps()

    def _asked(self, report: Dict[str, Any]) -> None:
        self._values["can_yield"] = True
        gone = report.get("gone")
        self._asks.asked(process_of(report), [str(each) for each in gone] if isinstance(gone, list) else ())
        if self._counts_epochs:
            self.confirm()
        else:
            self._have_begun(self._asks.begun)

    def _told(self, report: Dict[str, Any]) -> None:
        self._values["can_yield"] = True
        self._asks.told(process_of(report))
        self.is_told = not self.is_in_last_epoch

    def _end(self, report: Dict[str, Any]) -> None:
        """That it trained to its end is told by its exit."""

    def confirm(self, *, by_itself: bool = False) -> None:
        """The epoch that ended last is saved as well: another one begins, or the task ended well, perhaps by itself."""
        if not self._counts_epochs:
            self._have_begun(self._asks.over if by_itself else self._asks.ended_by_all)
            self._take_laps(is_last=True)
            return
        done, seconds, steps = self._unsaved.done, self._unsaved.seconds, self._unsaved.own_steps
        if done is not None:
            self._unsaved.is_saved()
            self._is_over(self._count(done), float(seconds), steps, dict(self._metrics))

    # Clients that do not count their epochs

    def _have_begun(self, epochs: int) -> None:
        """So many epochs of this attempt are over and saved. Never fewer than before."""
        if epochs > self._begun:
            self._epochs.ended = self._count(self._epochs.before + epochs)
            self._begun = self._epochs.ended - self._epochs.before
            self._take_laps()

    def _take_laps(self, *, is_last: bool = False) -> None:
        """Into the history, in order. The newest epoch waits for word of how long it took; those before it do not."""
        while self._remembered < self._begun:
            number = self._remembered + 1
            lap = self._asks.take_lap(number)
            if lap is None and number == self._begun and not is_last:
                return
            self._remembered = number
            seconds, steps = lap or Lap()
            self._history.remember(self._epochs.before + number, seconds, steps, dict(self._metrics))

    _TAKERS: ClassVar[Dict[str, Callable[["ProgressReducer", Dict[str, Any]], None]]] = {
        "hello": _hello,
        "start": _start,
        "steps": _take_steps,
        "epoch": _epoch,
        "saved": _saved,
        "yield": _yield,
        "progress": _progress,
        "ended": _take_ended,
        "asked": _asked,
        "told": _told,
        "end": _end,
    }

    # Numbers

    def _count(self, value: float) -> int:
        """A number of epochs as it can be."""
        count = int(self._positive(value, "done"))
        total = self._epochs.total
        if total is not None and count > total:
            self._lines.complain("tells of %d epochs done of %d: taken as %d" % (count, total, total))
            return total
        return count

    def _positive(self, value: float, name: str) -> float:
        if value < 0:
            self._lines.complain("has a negative number in %s: %g, taken as 0" % (name, value))
            return 0.0
        return value

    def _measure(self, report: Dict[str, Any]) -> Dict[str, float]:
        """Take the metrics of a report; one that has become no number is known no more."""
        metrics = report.get("metrics")
        if not isinstance(metrics, dict):
            return {}
        taken = {}
        for name, value in list(metrics.items())[:_MOST_METRICS]:
            name = readable(name[:_LONGEST_NAME])
            if is_number(value):
                taken[name] = float(value)
            else:
                self._metrics.pop(name, None)
        if len(self._metrics) + len(taken) <= 2 * _MOST_METRICS:
            self._metrics.update(taken)
        else:
            self._metrics = dict(taken)
        return taken

    # What it adds up to

    @property
    def epochs_done(self) -> int:
        """Never more than is saved, if it tells of saves."""
        return self._epochs.done

    @property
    def has_yielded(self) -> bool:
        return bool(self._values.get("has_yielded"))

    @property
    def is_in_last_epoch(self) -> bool:
        return self._epochs.is_in_last

    @property
    def asking(self) -> Sequence[str]:
        """The processes that have asked whether they have to stop, or told of an epoch."""
        return self._asks.processes

    def may_stop(self, process: str) -> bool:
        """Whether the newest ask of this process may be answered with a stop. In its last epoch nothing is told to."""
        if self._counts_epochs:
            return not self.is_in_last_epoch
        total = self._epochs.total
        begun = max(self._epochs.done, self._epochs.before + self._asks.begun_by(process))
        return (total is None or begun < total - 1) and self._asks.may_be_told(process)

    @property
    def has_an_end(self) -> bool:
        """Do its reports tell how much there is to do?"""
        return self._epochs.total is not None or "percent" in self._values

    @property
    def is_unfinished(self) -> bool:
        """Does it tell for certain that there was more to do?"""
        if self._epochs.total is not None:
            return self._epochs.reached < self._epochs.total
        percent: Optional[float] = self._values.get("percent")
        return percent is not None and percent < 100

    @property
    def is_finished(self) -> bool:
        """Does it tell for certain that everything is done? The last epoch may have ended and not be confirmed."""
        epochs = self._epochs
        ended = int(self._unsaved.done or 0) if self._counts_epochs else epochs.before + self._asks.ended_by_all
        return epochs.total is not None and max(epochs.reached, ended) >= epochs.total

    def has_preempted(self) -> None:
        """However it ended, it stopped because it was asked to."""
        self._values["has_yielded"] = True

    def progress(self) -> Optional[Dict[str, Any]]:
        """A Progress of model/training.py; what has its default is left out. None: nothing has been reported."""
        if not (self._has_any or self._lines.trouble):
            return None
        result: Dict[str, Any] = {
            "epochs_done": self._epochs.done,
            "epochs_total": self._epochs.total,
            "steps": max(self._steps.count, self._history.steps),
            "step_seconds": self._steps.seconds,
            "epoch_seconds": self._history.median_seconds,
            **self._values,
            "metrics": dict(self._metrics),
            "history": list(self._history.epochs),
            "trouble": readable(self._lines.trouble),
        }
        return {name: value for name, value in result.items() if value or name in ("percent", "remaining_seconds")}
