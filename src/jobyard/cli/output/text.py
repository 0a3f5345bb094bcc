"""How are sentences, states, times and other people's text shown?"""

from __future__ import annotations

import re
import time
import unicodedata

import click

from jobyard.model.job import Reason, State
from jobyard.model.units import show_seconds
from jobyard.wire.views import Counts, JobView, TaskView

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
STATE_COLOURS = {
    State.RUNNING: "cyan",
    State.STARTING: "cyan",
    State.STOPPING: "yellow",
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.CANCELLED: "magenta",
}


def say(sentence: str, **style: bool | str) -> None:
    """One line for the person, on stderr: stdout belongs to results."""
    click.echo(click.style(f"yard: {sentence}", **style), err=True)  # type: ignore[arg-type]


def warn(sentence: str) -> None:
    say(f"warning: {sentence}", fg="yellow")


def harmless(text: str) -> str:
    """Text of a job on one line, without what could steer a terminal."""
    return " ".join(_CONTROL.sub("", _ESCAPE.sub("", line)) for line in text.splitlines()).replace("\t", " ")


def harmless_lines(lines: tuple[str, ...]) -> list[str]:
    return [harmless(line.rsplit("\r", 1)[-1]) for line in lines]


def width(text: str) -> int:
    """Columns on a terminal: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shortened(text: str, columns: int) -> str:
    if width(text) <= columns:
        return text
    while text and width(text) > columns - 1:
        text = text[:-1]
    return f"{text}…"


def state_text(state: State) -> str:
    return click.style(state.value, fg=STATE_COLOURS.get(state))


def age(since: float | None) -> str:
    return "-" if since is None else show_seconds(max(0.0, time.time() - since))


def local_time(at: float | None) -> str:
    return "-" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def wall_seconds(view: JobView | TaskView) -> float | None:
    if view.started_at is None:
        return None
    return max(0.0, (view.finished_at or time.time()) - view.started_at)


def run_time(view: JobView | TaskView) -> str:
    seconds = wall_seconds(view)
    return "-" if seconds is None else show_seconds(seconds)


def counts_text(counts: Counts) -> str:
    """`97 succeeded, 3 failed of 100`: what is zero is left out."""
    parts = [
        f"{number} {name}"
        for name in ("succeeded", "failed", "cancelled", "running", "starting", "stopping", "suspended", "pending")
        if (number := getattr(counts, name))
    ]
    return f"{', '.join(parts) or 'nothing'} of {counts.total}"


def outcome_text(task: TaskView) -> str:
    """How a task ended: `exit code 3`, `signal 9 (OutOfMemory)`."""
    if task.signal:
        shown = f"signal {task.signal}"
    elif task.exit_code is not None:
        shown = f"exit code {task.exit_code}"
    else:
        shown = task.state.value.lower()
    if task.reason in (None, Reason.EXIT_CODE, Reason.SIGNAL):
        return shown
    return f"{shown} ({task.reason.value})"
