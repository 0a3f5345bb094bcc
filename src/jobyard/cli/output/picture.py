"""Picture: one frame of the live view. What goes on, why it waits, what failed, and what runs now?

Imports rich, which costs a tenth of a second: only code that draws imports this module.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.text import Text

from jobyard.cli.output.harmless import harmless, harmless_lines
from jobyard.cli.output.summary import failure_lines
from jobyard.cli.output.text import age, ending_text, shortened, width
from jobyard.cli.output.training import eta_text, progress_text
from jobyard.model.job import State
from jobyard.model.units import show_seconds
from jobyard.wire.views import Counts, JobView, TaskView

WIDEST_BAR = 60
AGE_COLUMNS = 7


@dataclass(frozen=True)
class Picture:
    """It is laid out anew for the size of the terminal and the time that has passed."""

    view: JobView
    rate: float
    running: Sequence[TaskView] = ()
    failed: Sequence[TaskView] = ()
    footer: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = options.max_width
        lines = [self._head(), self._progress(columns)]
        lines += [line for line in (self._training(), self._waiting()) if line is not None]
        end = [Text(self.footer, "dim")] if self.footer else []
        room = console.size.height - 1 - len(lines) - len(end)
        failures = self._failures(max(2, room - min(len(self.running), room // 2)))
        running = self._running(columns, room - len(failures))
        yield Group(*(_one_line(line) for line in [*lines, *failures, *running, *end]))

    def _head(self) -> Text:
        view = self.view
        elapsed = show_seconds(max(0.0, time.time() - (view.started_at or view.submitted_at)))
        return Text.assemble(
            (harmless(view.name), "bold"), f"  job {view.number}  ", (view.state.value.lower(), "cyan"), f"  {elapsed}"
        )

    def _progress(self, columns: int) -> Text:
        counts = self.view.counts
        share = counts.finished / max(1, counts.total)
        text = Text(f" {counts.finished}/{counts.total} {share:.0%}  {counts.running} running")
        if counts.failed:
            text.append(f"  {counts.failed} failed", "bold red")
        if self.view.eta_seconds is not None:
            text.append(f"  eta {show_seconds(self.view.eta_seconds)}")
        if self.rate > 0:
            text.append(f"  {self.rate:.1f}/s" if self.rate < 100 else f"  {self.rate:.0f}/s")
        return bar(counts, max(10, min(WIDEST_BAR, columns - len(text.plain) - 1))) + text

    def _training(self) -> Text | None:
        training = self.view.training
        if training is None or not (progress := progress_text(training)):
            return None
        eta = eta_text(training)
        return Text(f"{progress}{f'  eta {eta}' if eta else ''}")

    def _waiting(self) -> Text | None:
        view = self.view
        nothing_runs = not (view.counts.running or view.counts.starting or view.counts.stopping)
        if view.state.is_final or not nothing_runs or not view.message:
            return None
        return Text(f"waiting: {harmless(view.message)}", "yellow")

    def _failures(self, room: int) -> list[Text]:
        """The first one with its command and its last lines, then others, one line each."""
        failure = self.view.first_failure
        if failure is None:
            return []
        head, *rest = failure_lines(failure)
        others = [task for task in self.failed if task.number != failure.task.number]
        kept = rest[:1] + rest[1:][-max(0, room - 2 - len(others)) :] if room > 2 else []
        lines = [
            Text(harmless(head.removeprefix("yard: ")), "red"),
            *(Text(harmless(f" {line}"), "dim") for line in kept),
        ]
        lines += [self._failed_line(task) for task in others]
        return lines[:room]

    def _failed_line(self, task: TaskView) -> Text:
        command = f"  $ {task.command}" if task.command != self.view.command else ""
        return Text(harmless(f"task {task.label}, {ending_text(task)}{command}"), "red")

    def _running(self, columns: int, room: int) -> list[Text]:
        tasks = self.running
        more = self.view.counts.running + self.view.counts.stopping - len(tasks)
        if len(tasks) > room or more > 0:
            more += max(0, len(tasks) - max(0, room - 1))
            tasks = tasks[: max(0, room - 1)]
        if not tasks:
            return []
        labels = max(width(harmless(task.label)) for task in tasks)
        shows_commands = any(task.command != self.view.command for task in tasks)
        lines = [self._task_line(task, labels, columns // 3 if shows_commands else 0) for task in tasks]
        return [*lines, Text(f"  and {more} more", "dim")] if more > 0 else lines

    def _task_line(self, task: TaskView, labels: int, command_columns: int) -> Text:
        label = harmless(task.label)
        since = age(task.started_at) if task.state is State.RUNNING else task.state.value.lower()
        text = Text(f"  {label}{' ' * (labels - width(label))}  {since:>{AGE_COLUMNS}}  ")
        if command_columns:
            command = shortened(harmless(task.command), command_columns)
            text.append(command + " " * (command_columns - width(command)) + "  ", "cyan")
        return text.append("".join(harmless_lines((task.last_line,))), "dim")


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
