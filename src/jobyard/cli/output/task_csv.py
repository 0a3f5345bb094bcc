"""Tasks as CSV: one row for each, with a column for each parameter, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from jobyard.cli.output.harmless import harmless
from jobyard.cli.output.text import echo_text
from jobyard.wire.views import TaskView

COLUMNS = ("task", "state", "attempt", "node", "exit_code", "signal", "started_at", "finished_at", "seconds")
LAST = ("peak_memory_mib", "command")


def print_task_csv(tasks: Sequence[TaskView]) -> None:
    """Times are seconds since 1970. A parameter whose name is a column already has `param_` before it."""
    names = names_of(tasks)
    taken = {*COLUMNS, *LAST}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = [*COLUMNS, *(f"param_{name}" if name in taken else name for name in names), *LAST]
    for row in (header, *(_cells(task, names) for task in tasks)):
        writer.writerow(map(_harmless, row))
    echo_text(text.getvalue())


def names_of(tasks: Sequence[TaskView]) -> list[str]:
    """The parameters of any of them, in order."""
    return list(dict.fromkeys(name for task in tasks for name in task.values))


def _cells(task: TaskView, names: Sequence[str]) -> list[str]:
    is_timed = task.started_at is not None and task.finished_at is not None
    return [
        task.label,
        task.state.value,
        str(task.attempt),
        task.node,
        _shown(task.exit_code),
        _shown(task.signal),
        _shown(task.started_at),
        _shown(task.finished_at),
        f"{(task.finished_at or 0) - (task.started_at or 0):.3f}" if is_timed else "",
        *(task.values.get(name, "") for name in names),
        _shown(task.peak_memory_mib),
        task.command,
    ]


def _harmless(cell: str) -> str:
    """A value may have several lines and tabs: CSV has quotes for them."""
    return "".join(part if part in "\n\t" else harmless(part) for part in re.split(r"([\n\t])", cell))


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
