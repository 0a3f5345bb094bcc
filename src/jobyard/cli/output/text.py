"""Terminal text: how are sentences, states and times printed, and text from outside made safe?

Whatever is printed for people goes through `echo` or `say`, and there through `harmless`: names, messages and paths
come from outside, and must not control a terminal. Only what tasks wrote (`tasklog.py`) is passed on as it is.
"""

from __future__ import annotations

import os
import sys
import time
import unicodedata
from typing import TextIO

import click

from jobyard.cli.output.harmless import harmless
from jobyard.model.job import Reason, State
from jobyard.model.units import show_seconds
from jobyard.wire.views import Counts, JobView, TaskView

STATE_COLOURS = {
    State.RUNNING: "cyan",
    State.STARTING: "cyan",
    State.STOPPING: "yellow",
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.CANCELLED: "magenta",
}


class Painted(str):
    """Text of our own making with a colour, which it has only where `echo`, a table or a list of fields prints it."""

    colour: str | None

    def __new__(cls, text: str, colour: str | None) -> Painted:
        painted = super().__new__(cls, text)
        painted.colour = colour
        return painted


def shown(text: str) -> str:
    """As it may reach a terminal."""
    return click.style(harmless(text), fg=text.colour) if isinstance(text, Painted) else harmless(text)


def echo(*parts: str, err: bool = False) -> None:
    """One line of a result, on stdout."""
    click.echo("".join(map(shown, parts)), err=err)


def echo_text(text: str | bytes) -> None:
    """Several lines, on stdout: as they are to a program, harmless to a terminal."""
    if sys.stdout.isatty():
        whole = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        text = "\n".join(harmless(line.expandtabs()) for line in whole.split("\n"))
    click.echo(text, nl=False)


def say(sentence: str, **style: bool | str) -> None:
    """One line for the person, on stderr: stdout belongs to results."""
    click.echo(click.style(f"yard: {harmless(sentence)}", **style), err=True)  # type: ignore[arg-type]


def warn(sentence: str) -> None:
    say(f"warning: {sentence}", fg="yellow")


def width(text: str) -> int:
    """Columns on a terminal: wide characters take two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    # By category and not by combining class: vowel signs of Hindi and Thai have class 0.
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shortened(text: str, columns: int) -> str:
    """Cut where it is wider; of a long text only the beginning is looked at."""
    if text.isascii():
        return text if len(text) <= columns else f"{text[: max(0, columns - 1)]}…"
    taken = kept = 0  # columns, and characters that leave one for the ellipsis
    for index, character in enumerate(text):
        taken += _columns(character)
        if taken > columns:
            return f"{text[:kept]}…"
        if taken < columns:
            kept = index + 1
    return text


def draws(stream: TextIO) -> bool:
    """Is it a terminal on which something can be written over? In an editor's shell (TERM=dumb) it is not."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def has_colours(stream: TextIO) -> bool:
    """For what is written past click, which knows this: on a terminal, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def state_text(state: State, more: str = "") -> Painted:
    return Painted(f"{state.value}{more}", STATE_COLOURS.get(state))


def because(state: State, reason: Reason | None) -> str:
    """The reason in brackets, unless it is the state once more."""
    return "" if reason is None or reason.value.upper() == state.value else f" ({reason.value})"


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


def ending_text(task: TaskView) -> str:
    """As `outcome_text`, and what else is known: the message, or what the task wrote to YARD_ERROR_FILE."""
    if task.reason not in (Reason.EXIT_CODE, Reason.SIGNAL):
        return outcome_text(task) + (f": {task.message}" if task.message else "")
    # "exit code 3: exited with code 3" would say it twice.
    own = f"exited with code {task.exit_code}" if task.signal is None else f"killed by signal {task.signal}"
    told = task.message.removeprefix(own)
    return outcome_text(task) + (f": {told}" if told and told == task.message else told)
