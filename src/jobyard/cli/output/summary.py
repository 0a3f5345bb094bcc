"""Summary: how did a job end? The last lines that are printed, and the exit code."""

from __future__ import annotations

import time

from jobyard.cli.output.harmless import harmless, harmless_lines
from jobyard.cli.output.text import Painted, counts_text, ending_text, outcome_text, shortened
from jobyard.model.job import Reason, State
from jobyard.model.units import show_seconds
from jobyard.wire.views import FailureView, JobView, TaskView

PLAIN = (Reason.EXIT_CODE, Reason.SIGNAL)  # the code or the signal says enough
SHOWN_LINES = 10  # of the first failure
COMMAND_COLUMNS = 200  # of its command
COLOURS = {State.SUCCEEDED: "green", State.FAILED: "red", State.CANCELLED: "magenta"}


def title(view: JobView) -> str:
    return f"job {view.number} ({harmless(view.name)})"


def summary_lines(view: JobView, *, was_streamed: bool, failure_most: int | None = None) -> list[str]:
    """Counts, wall time, the first failure, where the logs are. What was streamed already is not said again.

    `failure_most`: so many lines of the first failure, which was told before; None: all of them.
    """
    lines: list[str] = [Painted(f"yard: {_headline(view)}", COLOURS.get(view.state))]
    failure = view.first_failure
    if failure is not None:
        if view.counts.total > 1 or not was_streamed:
            lines += failure_lines(failure)[:failure_most]
        elif failure.task.message and failure.task.reason not in PLAIN:  # no output tells of it
            lines.append(f"yard: {harmless(failure.task.message)}")
        if view.counts.cancelled and view.message:  # why the others did not run
            lines.append(f"yard: {harmless(view.message)}")
    elif view.message and view.state is not State.SUCCEEDED:
        lines.append(f"yard: {harmless(view.message)}")
    if view.given_more:
        lines.append(f"yard: note: {harmless(view.given_more)}")
    if view.not_written:
        lines.append(Painted(f"yard: {harmless(view.not_written)}", "red"))
    if view.state is not State.SUCCEEDED and _has_begun(view):
        lines.append(f"yard: logs: yard logs {view.number}{_task_words(view)}")
    return lines


def output_line(view: JobView) -> str:
    """Where the output is that nobody has seen. Empty: no task has begun, or files of `--output` have it."""
    if not _has_begun(view) or "staging.output" in view.asked:
        return ""
    return f"output: yard cat {view.number} (or run with --cat)"


def failure_lines(failure: FailureView) -> list[str]:
    task = failure.task
    where = f" on {task.node}" if task.node else ""
    head = Painted(f"yard: first failure: task {task.label}{where}, {ending_text(task)}", "red")
    command = [f"    $ {shortened(harmless(task.command), COMMAND_COLUMNS)}"] if task.command else []
    return [head, *command, *(f"    {line}" for line in harmless_lines(failure.last_lines[-SHOWN_LINES:]))]


def failure_in_full(failure: FailureView) -> list[str]:
    """Says too when there was no output: nobody shall look for it, or take the silence for a fault."""
    task = failure.task
    has_ended_itself = task.exit_code is not None or task.signal is not None
    silence = ["    (no output)"] if has_ended_itself and not failure.last_lines else []
    return [*failure_lines(failure), *silence]


def exit_code_of(view: JobView, *, pass_through: bool = False) -> int:
    """0 when all succeeded, else 1; with `pass_through` a single task's own code, 128 + n for signal n."""
    if view.state is State.SUCCEEDED:
        return 0
    if pass_through and view.counts.total == 1:
        failed = view.first_failure.task if view.first_failure else None
        if failed is not None and failed.signal:
            return own_exit_code(failed)
        return view.exit_code or (own_exit_code(failed) if failed else 1)
    return 1


def own_exit_code(failed: TaskView) -> int:
    """As a shell has it: 128 + n for signal n. Never 0."""
    return 128 + failed.signal if failed.signal else failed.exit_code or 1


def _headline(view: JobView) -> str:
    took = show_seconds(max(0.0, (view.finished_at or time.time()) - (view.started_at or view.submitted_at)))
    if view.counts.total > 1:
        return f"{title(view)} {view.state.told} after {took}: {counts_text(view.counts)}"
    failure = view.first_failure
    how = outcome_text(failure.task) if failure is not None and view.state is State.FAILED else ""
    if how.startswith(view.state.told):  # without an exit code or signal it is the state once more
        how = how.removeprefix(view.state.told).strip()
    elif how:
        how = f"with {how}"
    return " ".join(filter(None, (title(view), view.state.told, how, "after", took)))


def _has_begun(view: JobView) -> bool:
    return (view.started_at or view.first_started_at) is not None


def _task_words(view: JobView) -> str:
    return f"/{view.first_failure.task.label}" if view.first_failure and view.counts.total > 1 else ""
