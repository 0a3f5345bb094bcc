"""Live display: what does a terminal show of a job? A bar, counts, rate, ETA, why it waits, the first failure.

Imports rich, which costs a tenth of a second: only code that draws imports this module.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.text import Text

from jobyard.cli.output.harmless import harmless, harmless_lines
from jobyard.cli.output.plain import QuietDisplay
from jobyard.cli.output.summary import SHOWN_LINES, summary_lines
from jobyard.cli.output.text import echo, outcome_text
from jobyard.cli.output.training import eta_text, progress_text
from jobyard.model.units import show_seconds
from jobyard.wire.views import Counts, JobView

RATE_SECONDS = 15.0  # the window over which the rate is measured
FRAMES_PER_SECOND = 8
WIDEST_BAR = 60


class LiveDisplay(QuietDisplay):
    """Drawn on stderr and taken away at the end, when the summary takes its place."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._clock = clock
        self._picture: Picture | None = None
        self._rate = Rate()
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=FRAMES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def submitted(self, view: JobView) -> None:
        self.update(view)

    def update(self, view: JobView) -> None:
        now = self._clock()
        self._rate.add(now, view.counts.finished)
        self._picture = Picture(view, self._rate.per_second(now))

    def say(self, sentence: str) -> None:
        self._console.print(Text(f"yard: {harmless(sentence)}"))

    def summary(self, view: JobView) -> None:
        """After the display was closed."""
        for line in summary_lines(view, was_streamed=False):
            echo(line, err=True)

    def _draw(self) -> Picture | Text:
        return self._picture or Text("")


class Rate:
    """Tasks finished each second, over the last seconds only."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, now: float, finished: int) -> None:
        self._seen.append((now, finished))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_SECONDS:
            self._seen.popleft()

    def per_second(self, now: float) -> float:
        if not self._seen:
            return 0.0
        (then, before), (_, after) = self._seen[0], self._seen[-1]
        return (after - before) / (now - then) if now > then else 0.0


class Picture:
    """One frame; it redraws for the width of the terminal and the time that has passed."""

    def __init__(self, view: JobView, rate: float) -> None:
        self.view = view
        self.rate = rate

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [self._head(), self._progress(options.max_width)]
        lines += [line for line in (self._training(), self._waiting()) if line is not None]
        yield Group(*(_one_line(line) for line in [*lines, *self._failure()]))

    def _head(self) -> Text:
        view = self.view
        elapsed = show_seconds(max(0.0, time.time() - (view.started_at or view.submitted_at)))
        return Text.assemble(
            (harmless(view.name), "bold"), f"  {view.id}  ", (view.state.value.lower(), "cyan"), f"  {elapsed}"
        )

    def _progress(self, columns: int) -> Text:
        counts = self.view.counts
        share = counts.finished / max(1, counts.total)
        parts = [f" {counts.finished}/{counts.total} {share:.0%}", f"  {counts.running} running"]
        text = Text("".join(parts))
        if counts.failed:
            text.append(f"  {counts.failed} failed", "bold red")
        if self.rate > 0:
            text.append(f"  {self.rate:.1f}/s" if self.rate < 100 else f"  {self.rate:.0f}/s")
        if (eta := self._eta_seconds()) is not None:
            text.append(f"  eta {show_seconds(eta)}")
        return bar(counts, max(10, min(WIDEST_BAR, columns - len(text.plain) - 1))) + text

    def _training(self) -> Text | None:
        training = self.view.training
        if training is None or not (progress := progress_text(training)):
            return None
        eta = eta_text(training)
        return Text(f"{progress}{f'  eta {eta}' if eta else ''}")

    def _eta_seconds(self) -> float | None:
        if self.view.eta_seconds is not None:
            return self.view.eta_seconds
        left = self.view.counts.total - self.view.counts.finished
        return left / self.rate if self.rate > 0 and left else None

    def _waiting(self) -> Text | None:
        view = self.view
        nothing_runs = not (view.counts.running or view.counts.starting or view.counts.stopping)
        if view.state.is_final or not nothing_runs or not view.message:
            return None
        return Text(f"waiting: {harmless(view.message)}", "yellow")

    def _failure(self) -> list[Text]:
        failure = self.view.first_failure
        if failure is None:
            return []
        head = Text(harmless(f"first failure: task {failure.task.label}, {outcome_text(failure.task)}"), "red")
        return [head, *(Text(f"  {line}", "dim") for line in harmless_lines(failure.last_lines[-SHOWN_LINES:]))]


def bar(counts: Counts, columns: int) -> Text:
    """Done in green, failed in red, running in cyan, the rest dim; no part that exists is narrower than one column."""
    pieces = [
        (counts.succeeded, "━", "green"),
        (counts.failed + counts.cancelled, "━", "red"),
        (counts.starting + counts.running + counts.stopping, "╸", "cyan"),
    ]
    text = Text()
    for number, character, style in pieces:
        cells = min(columns - len(text.plain), max(1, columns * number // max(1, counts.total)) if number else 0)
        text.append(character * cells, style)
    return text.append("─" * (columns - len(text.plain)), "dim")


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
