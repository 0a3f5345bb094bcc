"""Picture: one frame of the live view. What goes on, why it waits, what failed, and what runs now?

Imports rich, which costs a tenth of a second: only code that draws imports this module.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.text import Text

from jobyard.cli.output.harmless import harmless, harmless_lines
from jobyard.cli.output.summary import failure_lines
from jobyard.cli.output.text import age, ending_text, shortened, width
from jobyard.cli.output.training import eta_text, training_progress
from jobyard.model.job import State
from jobyard.model.units import show_seconds
from jobyard.wire.views import Counts, JobView, TaskView

WIDEST_BAR, LEAST_BAR = 60, 8
AGE_COLUMNS = 7
LAST_LINE_COLUMNS = 34  # what a task wrote last has so many, with the gaps, before its command is shortened
SPARE_NUMBERS = ("rate", "running", "eta")  # left out on a narrow terminal, the first one first
LEAST_NAME = 8
REASON_LINES = 3  # why it waits, on a narrow terminal


@dataclass(frozen=True)
class Picture:
    """It is laid out anew for the size of the terminal and the time that has passed."""

    view: JobView
    rate: float
    running: Sequence[TaskView] = ()
    failed: Sequence[TaskView] = ()
    footer: str = ""
    question: str = ""  # in place of the footer
    trouble: str = ""  # what stands here is old, and why

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns, rows = options.max_width, max(1, options.size.height - 1)
        lines = [self._progress(columns), self._head(columns), *self._problems(), *self._training()]
        lines += self._waiting(columns)
        end = self._end()
        # Of a window of few rows the question has the first, how far it is the next, and the hint the last.
        lines = lines[: max(0 if self.question else 1, rows - len(end))]
        lines[:2] = lines[1::-1]
        end = end[: rows - len(lines)]
        room = rows - len(lines) - len(end)
        failures = self._failures(room, room - min(len(self.running), room // 2))
        running = self._running(columns, room - len(failures))
        yield Group(*(_one_line(line) for line in [*lines, *failures, *running, *end]))

    def _head(self, columns: int) -> Text:
        view, state = self.view, self.view.state.value.lower()
        elapsed = show_seconds(max(0.0, time.time() - (view.started_at or view.submitted_at)))
        room = columns - width(f"  job {view.number}  {state}  {elapsed}")
        name = shortened(harmless(view.name), max(LEAST_NAME, room))
        return Text.assemble((name, "bold"), f"  job {view.number}  ", (state, "cyan"), f"  {elapsed}")

    def _progress(self, columns: int) -> Text:
        """A bar and numbers: a narrow terminal does without some of them, and then with a shorter bar."""
        counts, eta = self.view.counts, self.view.eta_seconds
        share = counts.finished / max(1, counts.total)
        parts = {
            "count": Text(f"{counts.finished}/{counts.total} {share:.0%}"),
            "running": Text(f"  {counts.running} running"),
            "failed": Text(f"  {counts.failed} failed" if counts.failed else "", "bold red"),
            "eta": Text(f"  eta {show_seconds(eta)}" if eta is not None else ""),
            "rate": Text(_rate_text(self.rate)),
        }
        for spare in SPARE_NUMBERS:
            if sum(len(part) for part in parts.values()) + LEAST_BAR + 2 > columns:
                parts.pop(spare)
        numbers = Text.assemble(*parts.values())
        room = columns - len(numbers) - 2
        return Text.assemble(bar(counts, min(WIDEST_BAR, room)), " ", numbers) if room > 0 else numbers

    def _end(self) -> list[Text]:
        if self.question:
            return [Text(self.question, "bold yellow")]
        return [Text(self.footer, "dim")] if self.footer else []

    def _problems(self) -> list[Text]:
        return [Text(self.trouble, "yellow")] if self.trouble else []

    def _training(self) -> list[Text]:
        training = self.view.training
        if training is None or not (progress := training_progress(training)):
            return []
        eta = eta_text(training)
        return [Text(f"{progress}{f'  eta {eta}' if eta else ''}")]

    def _waiting(self, columns: int) -> list[Text]:
        view = self.view
        nothing_runs = not (view.counts.running or view.counts.starting or view.counts.stopping)
        if view.state.is_final or not nothing_runs or not view.message:
            return []
        told = f"waiting: {harmless(view.message)}"
        folded = textwrap.wrap(
            told, max(LEAST_BAR, columns), max_lines=REASON_LINES, placeholder=" …", subsequent_indent="  "
        )
        return [Text(line, "yellow") for line in folded]

    def _failures(self, most: int, wanted: int) -> list[Text]:
        """The first one with its command and its last lines, then others, one line each.

        In not more lines than `most`, nor than `wanted`, but what failed and its command always count.
        """
        failure = self.view.first_failure
        if failure is None:
            return []
        room = min(most, max(2, wanted))
        head, *rest = failure_lines(failure)
        others = [task for task in self.failed if task.number != failure.task.number]
        command, output = rest[:1], rest[1:]
        kept = command + output[max(0, len(output) - max(0, room - 2 - len(others))) :] if room > 2 else []
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
        commands = [""] * len(tasks)
        if any(task.command != self.view.command for task in tasks):
            least = columns - labels - AGE_COLUMNS - LAST_LINE_COLUMNS
            commands = told_apart([harmless(task.command) for task in tasks], max(columns // 3, least))
        lines = [self._task_line(*each, labels) for each in zip(tasks, commands, strict=True)]
        return [*lines, Text(f"  and {more} more", "dim")] if more > 0 else lines

    def _task_line(self, task: TaskView, command: str, labels: int) -> Text:
        label = harmless(task.label)
        since = age(task.started_at) if task.state is State.RUNNING else task.state.value.lower()
        text = Text(f"  {label}{' ' * (labels - width(label))}  {since:>{AGE_COLUMNS}}  ")
        if command:
            text.append(f"{command}  ", "cyan")
        return text.append("".join(harmless_lines((task.last_line,))), "dim")


def told_apart(commands: Sequence[str], columns: int) -> list[str]:
    """As wide as the widest, and at most so many columns: where they do not fit, without the words all begin with."""
    if max(map(width, commands)) > columns:
        first, last = min(commands), max(commands)  # what these begin with, all do
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
        if len(commands) > 1 and (cut := first.rfind(" ", 0, same) + 1):
            commands = [f"… {command[cut:]}" for command in commands]
    cells = [shortened(command, columns) for command in commands]
    widest = max(map(width, cells))
    return [cell + " " * (widest - width(cell)) for cell in cells]


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


def _rate_text(rate: float) -> str:
    if rate <= 0:
        return ""
    return f"  {rate:.1f}/s" if rate < 100 else f"  {rate:.0f}/s"


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
