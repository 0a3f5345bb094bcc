"""What do the reports in a spool add up to?

A spool is JSON lines that a task appends: `hello`, `start`, `steps`, `epoch`, `saved`, `yield`, `progress`. For clients
of other protocols the HTTP door writes `asked` (has it to stop?) and `told` (yes), `ended` (an epoch is over, and may
not be saved yet) and `end`.
"""

from __future__ import annotations

import json
import math
from typing import Any, Callable, ClassVar, Dict, List, Optional, Sequence

from jobyard.agent_protocol.epoch_asks import Asks, Lap

HISTORY = 100  # epochs that a progress remembers
LONGEST_LINE = 1 << 16
_MOST_METRICS = 64
_LONGEST_NAME = 100
_LARGEST = 1e15


class Unreadable(Exception):
    """What is wrong with a line, as the end of a sentence that begins with its number."""


class ProgressReducer:
    """Takes the bytes of one spool, in any pieces, and knows at any time what they add up to. Never raises.

    A line without its newline waits for it. What cannot be read is skipped; `trouble` names the first of it.
    """

    def __init__(self, started_at: Optional[float] = None) -> None:
        self._started_at = started_at
        self._partial = b""
        self._is_skipping = False  # within a line that is too long
        self._line = 0
        self._total: Optional[int] = None
        self._known_done: Optional[int] = None  # at its start; None: it has not said
        self._epoch_done: Optional[int] = None
        self._saved_done: Optional[int] = None
        self._steps = 0
        self._epoch_steps = 0
        self._step_seconds = 0.0
        self._has_steps = False
        self._history: List[Dict[str, Any]] = []
        self._ended: Dict[str, Any] = {}  # an epoch that is over and may not be saved yet
        self._ended_steps = 0  # of the attempt, at the end of the last such epoch
        self._asks = Asks()
        self._counts_epochs = False  # whoever asks also tells how many are done
        self._begun = 0  # epochs of this attempt that are over, by the asks of those who do not tell
        self._remembered = 0  # those of them that are in the history
        self._metrics: Dict[str, float] = {}
        self._values: Dict[str, Any] = {}  # fields of a progress that are levels by themselves
        self._trouble = ""
        self._has_any = False
        self.is_told = False  # the door has answered that it has to stop

    # Bytes

    def feed(self, data: bytes) -> None:
        """The next bytes of the spool."""
        *lines, partial = (self._partial + data).split(b"\n") if self._partial else data.split(b"\n")
        for line in lines:
            self._line += 1
            if self._is_skipping:
                self._is_skipping = False
            else:
                self._read(line)
        self._partial = b"" if self._is_skipping else partial
        if len(self._partial) > LONGEST_LINE:
            self._say(self._line + 1, "is longer than %d bytes and was skipped" % LONGEST_LINE)
            self._partial, self._is_skipping = b"", True

    def close(self) -> None:
        """Nothing more will come: a last line counts without its newline if it is whole."""
        if self._partial.strip():
            self._line += 1
            self._read(self._partial)
        self._partial = b""

    def passed_over(self, size: int) -> None:
        """So many bytes are not looked at: there is too much. What follows begins within a line."""
        self._partial, self._is_skipping = b"", True
        self._trouble = self._trouble or "%d MiB of reports were passed over: there are too many" % (size >> 20)

    def _read(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            if len(line) > LONGEST_LINE:
                raise Unreadable("is longer than %d bytes and was skipped" % LONGEST_LINE)
            self._take(_parsed(line))
        except Unreadable as error:
            self._say(self._line, str(error))

    def _say(self, line: int, what: str) -> None:
        self._trouble = self._trouble or "line %d of the reports %s" % (line, what)

    # Reports

    def _take(self, report: Dict[str, Any]) -> None:
        kind = report.get("t")
        if not isinstance(kind, str):
            raise Unreadable('has no "t" and was skipped')
        taker = self._TAKERS.get(kind)
        if taker is not None:  # what a newer SDK adds is not for us
            taker(self, report)
            self._has_any = True

    def _hello(self, report: Dict[str, Any]) -> None:
        if report.get("yields"):  # first: what it says of itself holds whatever it counts
            self._values["can_yield"] = True
        total, done = _optional(report, "epochs"), _optional(report, "done")
        if total is not None and total > 0:
            self._total = int(total)
        if done is not None:  # said again when a checkpoint knows better than the yard
            self._known_done = self._count(done)

    def _start(self, report: Dict[str, Any]) -> None:
        at = _number(report, "at")
        if self._started_at is not None and "restart_seconds" not in self._values:
            self._values["restart_seconds"] = round(max(0.0, at - self._started_at), 3)

    def _take_steps(self, report: Dict[str, Any]) -> None:
        steps, mean = _number(report, "steps"), _optional(report, "step_seconds")
        self._steps = int(self._positive(steps, "steps"))
        if mean is not None:
            self._step_seconds = self._positive(mean, "step_seconds")
            self._has_steps = True
        self._measure(report)

    def _epoch(self, report: Dict[str, Any]) -> None:
        done, seconds = self._count(_number(report, "done")), _optional(report, "seconds") or 0.0
        steps, mean = _optional(report, "steps") or 0, _optional(report, "step_seconds")
        if mean is not None and not self._has_steps:
            self._step_seconds = self._positive(mean, "step_seconds")
        metrics = self._measure(report)
        self._is_over(done, self._positive(seconds, "seconds"), int(self._positive(steps, "steps")), metrics)

    def _is_over(self, done: int, seconds: float, steps: int, metrics: Dict[str, float]) -> None:
        is_again = bool(self._history) and self._history[-1]["number"] == done  # every rank may tell of it
        self._epoch_done = done
        if done >= 1 and not is_again:
            self._remember(done, seconds, steps, metrics)

    def _remember(self, done: int, seconds: float, steps: int, metrics: Dict[str, float]) -> None:
        self._epoch_steps += steps
        epoch: Dict[str, Any] = {"number": done, "seconds": seconds, "steps": steps, "metrics": metrics}
        self._history.append(epoch)
        del self._history[:-HISTORY]

    def _saved(self, report: Dict[str, Any]) -> None:
        done, seconds, at = _number(report, "done"), _optional(report, "seconds"), _number(report, "at")
        self._saved_done = self._count(done)
        self._values["saved_at"] = at
        if seconds is not None:
            self._values["checkpoint_seconds"] = self._positive(seconds, "seconds")

    def _yield(self, report: Dict[str, Any]) -> None:
        done = _optional(report, "done")
        self._values["can_yield"] = self._values["has_yielded"] = True
        if done is not None:
            self._epoch_done = self._count(done)

    def _progress(self, report: Dict[str, Any]) -> None:
        percent, remaining = _optional(report, "percent"), _optional(report, "remaining")
        if percent is not None:
            self._values["percent"] = min(100.0, self._positive(percent, "percent"))
        if remaining is not None:
            self._values["remaining_seconds"] = self._positive(remaining, "remaining")
        self._measure(report)

    def _take_ended(self, report: Dict[str, Any]) -> None:
        """Several reports make up the end of one epoch, and every rank sends them."""
        for name in ("done", "seconds", "steps"):
            value = _optional(report, name)
            if value is not None:
                self._ended[name] = self._positive(value, name)
        if report.get("done") is not None:
            self._counts_epochs = True
        elif not self._counts_epochs:
            self._asks.ended(_process(report), self._ended.get("seconds", 0.0), int(self._ended.get("steps", 0)))
            self._take_laps()

    def _asked(self, report: Dict[str, Any]) -> None:
        self._values["can_yield"] = True
        gone = report.get("gone")
        self._asks.asked(_process(report), [str(each) for each in gone] if isinstance(gone, list) else ())
        if self._counts_epochs:
            self.confirm()
        else:
            self._have_begun(self._asks.begun)

    def _told(self, report: Dict[str, Any]) -> None:
        self._values["can_yield"] = True
        self._asks.told(_process(report))
        self.is_told = not self.is_in_last_epoch

    def _end(self, report: Dict[str, Any]) -> None:
        """That it trained to its end is told by its exit."""

    def confirm(self, *, by_itself: bool = False) -> None:
        """The epoch that ended last is saved as well: another one begins, or the task ended well, perhaps by itself."""
        if not self._counts_epochs:
            self._have_begun(self._asks.over if by_itself else self._asks.ended_by_all)
            self._take_laps(is_last=True)
            return
        if "done" not in self._ended:
            return
        ended, self._ended = self._ended, {}
        total_steps = int(ended.get("steps", 0))
        steps, self._ended_steps = max(0, total_steps - self._ended_steps), max(total_steps, self._ended_steps)
        self._is_over(self._count(ended["done"]), float(ended.get("seconds", 0.0)), steps, dict(self._metrics))

    # Clients that do not count their epochs

    def _have_begun(self, epochs: int) -> None:
        """So many epochs of this attempt are over and saved. Never fewer than before."""
        if epochs > self._begun:
            self._epoch_done = self._count(self._done_before + epochs)
            self._begun = self._epoch_done - self._done_before
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
            self._remember(self._done_before + number, seconds, steps, dict(self._metrics))

    @property
    def _done_before(self) -> int:
        return self._known_done or 0

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
        if self._total is not None and count > self._total:
            self._say(self._line, "tells of %d epochs done of %d: taken as %d" % (count, self._total, self._total))
            return self._total
        return count

    def _positive(self, value: float, name: str) -> float:
        if value < 0:
            self._say(self._line, "has a negative number in %s: %g, taken as 0" % (name, value))
            return 0.0
        return value

    def _measure(self, report: Dict[str, Any]) -> Dict[str, float]:
        """Take the metrics of a report; one that has become no number is known no more."""
        metrics = report.get("metrics")
        if not isinstance(metrics, dict):
            return {}
        taken = {}
        for name, value in list(metrics.items())[:_MOST_METRICS]:
            name = _readable(name[:_LONGEST_NAME])
            if isinstance(value, (int, float)) and not isinstance(value, bool) and _is_sane(value):
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
        for known in (self._saved_done, self._epoch_done, self._known_done):
            if known is not None:
                return known
        return 0

    @property
    def has_yielded(self) -> bool:
        return bool(self._values.get("has_yielded"))

    @property
    def is_in_last_epoch(self) -> bool:
        done = self.epochs_done if self._epoch_done is None else self._epoch_done
        return self._total is not None and done >= self._total - 1

    @property
    def asking(self) -> Sequence[str]:
        """The processes that have asked whether they have to stop, or told of an epoch."""
        return self._asks.processes

    def may_stop(self, process: str) -> bool:
        """Whether the newest ask of this process may be answered with a stop. In its last epoch nothing is told to."""
        if self._counts_epochs:
            return not self.is_in_last_epoch
        begun = max(self.epochs_done, self._done_before + self._asks.begun_by(process))
        return (self._total is None or begun < self._total - 1) and self._asks.may_be_told(process)

    @property
    def has_an_end(self) -> bool:
        """Do its reports tell how much there is to do?"""
        return self._total is not None or "percent" in self._values

    @property
    def is_unfinished(self) -> bool:
        """Does it tell for certain that there was more to do?"""
        if self._total is not None:
            return max(self.epochs_done, self._epoch_done or 0) < self._total
        percent: Optional[float] = self._values.get("percent")
        return percent is not None and percent < 100

    @property
    def is_finished(self) -> bool:
        """Does it tell for certain that everything is done? The last epoch may have ended and not be confirmed."""
        ended = self._done_before + self._asks.ended_by_all if not self._counts_epochs else self._ended.get("done", 0)
        done = max(self.epochs_done, self._epoch_done or 0, int(ended))
        return self._total is not None and done >= self._total

    def has_preempted(self) -> None:
        """However it ended, it stopped because it was asked to."""
        self._values["has_yielded"] = True

    def progress(self) -> Optional[Dict[str, Any]]:
        """A Progress of model/training.py; what has its default is left out. None: nothing has been reported."""
        if not (self._has_any or self._trouble):
            return None
        result: Dict[str, Any] = {
            "epochs_done": self.epochs_done,
            "epochs_total": self._total,
            "steps": max(self._steps, self._epoch_steps),
            "step_seconds": self._step_seconds,
            "epoch_seconds": _median(sorted(epoch["seconds"] for epoch in self._history if epoch["seconds"])),
            **self._values,
            "metrics": dict(self._metrics),
            "history": list(self._history),
            "trouble": _readable(self._trouble),
        }
        return {name: value for name, value in result.items() if value or name in ("percent", "remaining_seconds")}


def _parsed(line: bytes) -> Dict[str, Any]:
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):
        raise Unreadable("is not JSON and was skipped") from None
    if not isinstance(report, dict):
        raise Unreadable("is not a JSON object and was skipped")
    return report


def _process(report: Dict[str, Any]) -> str:
    """Who reports; empty: the door could not tell."""
    process = report.get("process")
    return process if isinstance(process, str) else ""


def _optional(report: Dict[str, Any], name: str) -> Optional[float]:
    return None if report.get(name) is None else _number(report, name)


def _number(report: Dict[str, Any], name: str) -> float:
    value = report.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_sane(value):
        raise Unreadable("was skipped: %s must be a number" % name)
    return value


def _is_sane(value: float) -> bool:
    return math.isfinite(value) and abs(value) < _LARGEST if isinstance(value, float) else abs(value) < _LARGEST


def _readable(text: str) -> str:
    """JSON may escape half a character; whoever passes it on could not write it."""
    return text.encode("utf-8", "replace").decode()


def _median(ordered: List[float]) -> float:
    if not ordered:
        return 0.0
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
