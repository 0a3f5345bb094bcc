"""`yard priority`: let a job go earlier or later than it was submitted."""

from __future__ import annotations

import click

from jobyard.cli.output.json import print_json
from jobyard.cli.output.summary import title
from jobyard.cli.output.text import echo
from jobyard.cli.session import Session, with_session
from jobyard.manifests.job_fields import FLAGGED


@click.command("priority", context_settings={"ignore_unknown_options": True})  # -5 is a priority and no option
@with_session
@click.argument("job", metavar="JOB")
@click.argument("number", metavar="N")
def command(session: Session, job: str, number: str) -> int:
    """Give a job another priority: of those that wait, the one with the higher number goes first.

    As --priority of `yard run`; N may be below 0.
    """
    priority: int = FLAGGED["priority"].from_flag(number, "priority")
    view = session.client.change_priority(job, priority)
    if session.is_json:
        print_json(view)
        return 0
    when = f"; it {view.state.told}, so this counts if it is retried" if view.state.is_final else ""
    echo(f"{title(view)} has priority {view.priority}{when}")
    return 0
