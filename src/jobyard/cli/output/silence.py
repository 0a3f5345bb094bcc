"""Silence: why is nothing shown of the failed tasks? Said on stderr, so that nobody takes it for a fault."""

from __future__ import annotations

from jobyard.cli.output.text import say
from jobyard.wire.views import JobView


def say_no_failed_output(view: JobView, tasks: str | None) -> None:
    """`tasks`: the words that name those that were asked for, if not all."""
    failed = view.counts.failed
    if not failed:
        say(f"no task of job {view.number} has failed")
    elif tasks:
        say(f"no output: among tasks {tasks} of job {view.number} none that failed wrote anything")
    else:
        say(f"no output: the {failed} failed task{'' if failed == 1 else 's'} of job {view.number} wrote nothing")
