"""Plain display: what does a person see of a job where there is no terminal? A few plain lines on stderr."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence

from jobyard.cli.output.harmless import harmless
from jobyard.cli.output.summary import failure_lines, summary_lines, title
from jobyard.cli.output.tasklog import LogWriter
from jobyard.cli.output.text import echo, say, shortened, warn
from jobyard.model.job import State
from jobyard.model.units import show_seconds
from jobyard.wire.views import JobView, TaskView

IN_SIGHT_LINES = 8  # what was said so many lines ago is not said again
SHORT_WAIT_SECONDS = 1.0  # a job that starts within it was not waiting
SHORT_LOSS_SECONDS = 3.0  # a server of this machine is started again within it


class QuietDisplay:
    """Shows nothing but what nobody would notice otherwise."""

    is_live = False  # does it show the tasks that run, and a line of its own?

    def __enter__(self) -> QuietDisplay:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submitted(self, view: JobView) -> None: ...

    def update(self, view: JobView) -> None: ...

    def tick(self) -> None: ...

    def say(self, sentence: str) -> None:
        say(sentence)

    def warn(self, sentence: str) -> None:
        warn(sentence)

    def tasks(self, running: Sequence[TaskView], failed: Sequence[TaskView]) -> None: ...

    def output_follows(self) -> None:
        """The output of tasks is written next."""

    def footer(self, sentence: str) -> None: ...

    def ask(self, question: str) -> None:
        """In place of the footer; empty: it was answered."""

    def lost(self, seconds: float) -> None:
        """So long the server has not answered; 0.0: it does."""

    def summary(self, view: JobView) -> None:
        if view.not_written:
            say(view.not_written, fg="red")


class PlainDisplay(QuietDisplay):
    """Submitted, why it waits, progress at each tenth or every few seconds, the first failure, the summary."""

    def __init__(
        self,
        *,
        progress_seconds: float,
        is_streamed: bool,
        log: LogWriter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log  # what the tasks write goes there, and may stand on the same terminal
        self._progress_seconds = progress_seconds
        self._is_streamed = is_streamed  # the task's own output is shown: no progress lines between
        self._clock = clock
        self._view: JobView | None = None
        self._waiting_since: float | None = None
        self._said_reason = ""
        self._said_at = 0.0
        self._said_tenth = 0
        self._said_finished = 0
        self._said_failure = False
        self._said_since = 0  # lines, after the first failure
        self._said_lost = False

    def say(self, sentence: str) -> None:
        self.end_line()
        self._said_since += 1
        super().say(sentence)

    def warn(self, sentence: str) -> None:
        self.end_line()
        super().warn(sentence)

    def end_line(self) -> None:
        """So that what is said next has a line of its own."""
        if self._log is not None:
            self._log.end_line()

    def submitted(self, view: JobView) -> None:
        count = "" if view.counts.total == 1 else f", {view.counts.total} tasks"
        say(f"{title(view)} submitted{count}", dim=True)
        self._said_at = self._clock()

    def update(self, view: JobView) -> None:
        self._view = view
        is_summed_up = self._is_streamed or view.state.is_final  # the summary has it, and comes next
        if view.first_failure is not None and not (self._said_failure or is_summed_up):
            self._said_failure, self._said_since = True, 0
            for line in failure_lines(view.first_failure):
                echo(line, err=True)
        self.tick()

    def tick(self) -> None:
        if self._view is not None:
            self._say_waiting(self._view)
            if not self._is_streamed and not self._view.state.is_final:
                self._say_progress(self._view)

    def lost(self, seconds: float) -> None:
        if seconds > SHORT_LOSS_SECONDS and not self._said_lost:
            self._said_lost = True
            self.say("the server does not answer; trying again")
        elif self._said_lost and not seconds:
            self._said_lost = False
            self.say("the server answers again")

    def summary(self, view: JobView) -> None:
        self.end_line()
        is_in_sight = self._said_since <= IN_SIGHT_LINES
        again = None if not self._said_failure else 0 if is_in_sight else 1  # lines of the first failure
        for line in summary_lines(view, was_streamed=self._is_streamed, failure_most=again):
            echo(line, err=True)

    def _say_waiting(self, view: JobView) -> None:
        reason = harmless(view.message)
        if view.state not in (State.PENDING, State.STARTING) or not reason:
            self._waiting_since = None
            return
        now = self._clock()
        self._waiting_since = self._waiting_since or now
        if now - self._waiting_since >= SHORT_WAIT_SECONDS and reason != self._said_reason:
            self._said_reason = reason
            self.say(f"waiting: {reason}")

    def _say_progress(self, view: JobView) -> None:
        counts, now = view.counts, self._clock()
        finished, tenth = counts.finished, counts.finished * 10 // max(1, counts.total)
        is_time = now - self._said_at >= self._progress_seconds
        if finished == self._said_finished or not (is_time or tenth > self._said_tenth):
            return
        self._said_at, self._said_finished, self._said_tenth = now, finished, tenth
        self.say(counts_progress(view))


BAR_COLUMNS = 20
_CLEAR_LINE = "\r\033[K"


class BarDisplay(PlainDisplay):
    """Beside output that is printed too: on a terminal one line that writes over itself, else lines now and then."""

    def __init__(
        self,
        *,
        progress_seconds: float,
        is_terminal: bool,
        log: LogWriter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(progress_seconds=progress_seconds, is_streamed=True, log=log, clock=clock)
        self._is_terminal = is_terminal
        self._shown = ""

    def tick(self) -> None:
        view = self._view
        if view is None or view.state.is_final:
            self._show("")
        elif self._is_terminal and (view.counts.finished or view.counts.running):
            self._show(shortened(bar_text(view), shutil.get_terminal_size().columns - 1))
        else:
            self._say_waiting(view)
            if not self._is_terminal:
                self._say_progress(view)

    def end_line(self) -> None:
        self._show("")
        super().end_line()

    def output_follows(self) -> None:
        self._show("")

    def _show(self, line: str) -> None:
        """In place of what stands there; empty: nothing does. A line of output that has no end yet stays."""
        if self._log is not None and self._log.is_line_open:
            return
        if line != self._shown:
            self._shown = line
            sys.stderr.write(f"{_CLEAR_LINE}{line}")
            sys.stderr.flush()


def bar_text(view: JobView) -> str:
    """`#####--------------- 25% 5/20 done, 4 running, eta 12s`."""
    share = view.counts.finished / max(1, view.counts.total)
    full = int(share * BAR_COLUMNS)
    return f"{'#' * full}{'-' * (BAR_COLUMNS - full)} {int(share * 100)}% {counts_progress(view)}"


def counts_progress(view: JobView) -> str:
    counts = view.counts
    eta = f", eta {show_seconds(view.eta_seconds)}" if view.eta_seconds is not None else ""
    failed = f", {counts.failed} failed" if counts.failed else ""
    return f"{counts.finished}/{counts.total} done, {counts.running} running{failed}{eta}"
