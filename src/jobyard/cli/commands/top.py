"""`yard top`: watch all jobs, nodes and GPUs."""

from __future__ import annotations

import sys

import click

from jobyard.cli.option_values import WholeNumber
from jobyard.cli.output.json import print_json
from jobyard.cli.output.text import draws
from jobyard.cli.session import Session, with_session
from jobyard.errors import UserError


@click.command("top")
@with_session
@click.option("--seconds", type=WholeNumber(min=1), default=2, metavar="N", help="Look again every N seconds.")
def command(session: Session, seconds: int) -> int:
    """Watch all jobs, nodes and GPUs live, on a whole terminal.

    Keys: s sorts, / filters (a state, @user, a part of the name), l or Enter shows what a job wrote, c cancels it after
    asking, q quits.
    """
    from jobyard.cli.top.looking import JobWords, look

    if session.is_json:
        seen = look(session.client, JobWords())
        print_json({"jobs": seen.jobs, "total": seen.total, "nodes": seen.nodes})
        return 0
    if not draws(sys.stdout) or not sys.stdin.isatty():
        raise UserError("yard top: it needs a terminal; `yard ls` and `yard nodes` print once")
    from jobyard.cli.top.app import TopApp  # on first use: textual takes a third of a second

    TopApp(session.client, seconds).run()
    return 0
