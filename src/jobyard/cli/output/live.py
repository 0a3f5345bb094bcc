"""Live view: what does a terminal show of a job while it runs? The display that `run`, `attach` and `wait` share.

Imports rich, which costs a tenth of a second: only code that draws imports this module.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment
from rich.text import Text

from jobyard.cli.output.harmless import harmless
from jobyard.cli.output.picture import Picture
from jobyard.cli.output.plain import QuietDisplay
from jobyard.cli.output.resizing import LinesOnScreen
from jobyard.cli.output.summary import summary_lines
from jobyard.cli.output.text import echo
from jobyard.model.units import show_seconds
from jobyard.wire.views import JobView, TaskView

RATE_SECONDS = 15.0  # the window over which the rate is measured
FRAMES_PER_SECOND = 8


class LiveDisplay(QuietDisplay):
    """Drawn on stderr and taken away at the end, when the summary takes its place."""

    is_live = True

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._clock = clock
        self._view: JobView | None = None
        self._tasks: tuple[Sequence[TaskView], Sequence[TaskView]] = ((), ())
        self._footer = self._question = ""
        self._lost_seconds = 0.0  # since when the server has not answered
        self._lines = LinesOnScreen()
        self._rate = Rate()
        self._live = self._new_live()

    def _new_live(self) -> Live:
        return Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=FRAMES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> LiveDisplay:
        """May be entered again, below what others have printed meanwhile."""
        self._lines = LinesOnScreen()
        self._live = self._new_live()
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def submitted(self, view: JobView) -> None:
        self.update(view)

    def update(self, view: JobView) -> None:
        self._rate.add(self._clock(), view.counts.finished)
        self._view = view

    def tasks(self, running: Sequence[TaskView], failed: Sequence[TaskView]) -> None:
        self._tasks = (running, failed)

    def footer(self, sentence: str) -> None:
        self._footer = sentence

    def ask(self, question: str) -> None:
        self._question = question

    def lost(self, seconds: float) -> None:
        self._lost_seconds = seconds

    def say(self, sentence: str) -> None:
        self._print(Text(f"yard: {harmless(sentence)}"))

    def warn(self, sentence: str) -> None:
        self._print(Text(f"yard: warning: {harmless(sentence)}", "yellow"))

    def _print(self, text: Text) -> None:
        self._live.refresh()  # so that the lines of a terminal that was resized are in order
        self._console.print(text)
        self._lines.forget_above()

    def summary(self, view: JobView) -> None:
        """After the display was closed."""
        for line in summary_lines(view, was_streamed=False):
            echo(line, err=True)

    def _draw(self) -> Frame:
        return Frame(self._picture(), self._lines)

    def _picture(self) -> Picture | Text:
        if self._view is None:
            return Text("")
        lost = self._lost_seconds
        return Picture(
            self._view,
            self._rate.per_second(self._clock()),
            *self._tasks,
            self._footer,
            self._question,
            f"the server has not answered for {show_seconds(lost)}; trying again" if lost else "",
        )


@dataclass(frozen=True)
class Frame:
    """A picture in the place of the last one, whose lines are remembered as they are drawn.

    The cursor is at the first line of the last frame as rich knows it.
    """

    picture: Picture | Text
    lines: LinesOnScreen

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # The size is looked at once, here: a window is resized at any moment, and also before a frame that is asked for
        # is drawn.
        columns, rows = options.size
        more = self.lines.resized(columns, rows)
        yield Control(*[(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * more)
        lines = console.render_lines(self.picture, options, pad=False)
        self.lines.drawn([Segment.get_line_length(line) for line in lines], rows)
        for number, line in enumerate(lines):
            if number:
                yield Segment.line()
            yield from line


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
