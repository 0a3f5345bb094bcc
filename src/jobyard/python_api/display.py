"""Display: how are jobs and tasks shown in notebooks, and how far a job is while somebody waits for it?"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, ClassVar, Self, SupportsIndex, TypeVar, overload

from jobyard.model.job import State
from jobyard.wire.views import JobView, TaskView

BAR = 30  # characters
NO_TIME = "-"


def plain(text: object) -> str:
    """On one line, without what could steer a terminal or hide in it: names come from outside."""
    return "".join(character if character.isprintable() else " " for character in str(text))


def cell(text: object) -> str:
    """The same for HTML."""
    return escape(plain(text))


T = TypeVar("T")


class _Table(tuple[T, ...]):
    """Rows with headers: aligned in a terminal, a table in notebooks. A slice of it is one too."""

    headers: ClassVar[Sequence[str]]

    def rows(self) -> Iterator[Sequence[object]]:
        raise NotImplementedError

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> T: ...
    @overload
    def __getitem__(self, key: slice, /) -> Self: ...
    def __getitem__(self, key: SupportsIndex | slice, /) -> T | Self:
        return type(self)(super().__getitem__(key)) if isinstance(key, slice) else super().__getitem__(key)

    def __repr__(self) -> str:
        rows = [[plain(each) for each in row] for row in (self.headers, *self.rows())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{cell(header)}</th>" for header in self.headers)
        body = "".join(f"<tr>{''.join(f'<td>{cell(each)}</td>' for each in row)}</tr>" for row in self.rows())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class JobTable(_Table[JobView]):
    """Jobs, as `yard ls` has them."""

    headers = ("id", "name", "state", "tasks", "failed", "why")

    def rows(self) -> Iterator[Sequence[object]]:
        for job in self:
            counts = job.counts
            yield job.id, job.name, job.state, f"{counts.done}/{counts.total}", counts.failed, job.message


class TaskTable(_Table[TaskView]):
    """Tasks of a job, as `yard show --tasks` has them."""

    headers = ("task", "state", "node", "attempt", "took", "exit code", "why")

    def rows(self) -> Iterator[Sequence[object]]:
        for task in self:
            code = "" if task.exit_code is None else task.exit_code
            yield task.label, task.state, task.node, task.attempt, _took(task), code, task.message


def html_of_job(job: JobView) -> str:
    rows = (
        ("job", f"{job.number} ({job.name})"),
        ("state", job.state),
        ("tasks", progress_text(job)),
        ("command", job.command),
        ("why", job.message),
    )
    table = "".join(f"<tr><th>{cell(name)}</th><td>{cell(value)}</td></tr>" for name, value in rows if value)
    return f"<table>{table}</table>{_bar(job)}"


def _bar(job: JobView) -> str:
    return f'<progress value="{job.counts.finished}" max="{max(1, job.counts.total)}"></progress>'


def progress_text(job: JobView) -> str:
    counts = job.counts
    failed = f", {counts.failed} failed" if counts.failed else ""
    running = f", {counts.running} running" if counts.running and counts.total > 1 else ""
    waits = f": {job.message}" if job.state is State.PENDING and job.message else ""
    return f"{counts.finished}/{counts.total} ended{running}{failed}{waits}"


def progress_line(job: JobView) -> str:
    """For a terminal."""
    filled = BAR * job.counts.finished // max(1, job.counts.total)
    return (
        f"job {job.number} ({plain(job.name)}) [{'#' * filled}{'.' * (BAR - filled)}] {job.state} {progress_text(job)}"
    )


def _took(task: TaskView) -> str:
    if task.started_at is None:
        return NO_TIME
    end = time.time() if task.finished_at is None else task.finished_at
    return f"{max(0.0, end - task.started_at):.1f} s"


class _Shown:
    """A job as a notebook and a plain IPython show it."""

    def __init__(self, job: JobView) -> None:
        self._job = job

    def __repr__(self) -> str:
        return progress_line(self._job)

    def _repr_html_(self) -> str:
        return f"{cell(self._job.name)} {cell(self._job.id)} {_bar(self._job)} {cell(progress_text(self._job))}"


class Progress:
    """One line of a terminal, or one display of a notebook, that is written again; elsewhere nothing is shown."""

    def __init__(self, wanted: bool | None = None) -> None:
        """`wanted` None: where somebody looks."""
        self._in_notebook = wanted is not False and _is_notebook()
        self._in_terminal = wanted is not False and not self._in_notebook and (wanted is True or sys.stderr.isatty())
        self._handle: Any = None
        self._last = ""

    @property
    def is_wanted(self) -> bool:
        return self._in_notebook or self._in_terminal

    @property
    def is_begun(self) -> bool:
        """Has something been shown?"""
        return self.is_wanted and bool(self._last)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._in_terminal and self._last:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def update(self, job: JobView) -> None:
        """Nothing where it would look the same, nor for what has ended before anything was shown."""
        line = progress_line(job)
        if line == self._last or (job.state in (State.SUCCEEDED, State.FAILED, State.CANCELLED) and not self._last):
            return
        if self._in_notebook:
            self._update_notebook(_Shown(job))
        elif self._in_terminal:
            sys.stderr.write(f"\r{line}\x1b[K")
            sys.stderr.flush()
        self._last = line

    def _update_notebook(self, shown: _Shown) -> None:
        if self._handle is None:
            display = sys.modules["IPython.display"].display
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)


def _is_notebook() -> bool:
    """Does this program run in a kernel of Jupyter? IPython is not imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None and "IPython.display" in sys.modules
