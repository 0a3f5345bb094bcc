"""`yard attach`: open the live view of a job again."""

from __future__ import annotations

import click

from jobyard.cli.follow import Left, say_stopped, watch_to_end
from jobyard.cli.output.json import print_json
from jobyard.cli.output.summary import exit_code_of, summary_lines
from jobyard.cli.output.text import echo
from jobyard.cli.session import Session, with_session
from jobyard.wire.views import JobView


@click.command("attach")
@with_session
@click.argument("job", metavar="JOB")
@click.option("--exit-code", "pass_exit_code", is_flag=True, help="Exit with a single task's own code.")
def command(session: Session, job: str, pass_exit_code: bool) -> int:
    """Open the live view of a job: what runs with its age and its last line, and what failed.

    q or Ctrl-C leaves, and the job goes on; c cancels it after asking. JOB is a number, an id or its beginning, a name,
    or `last`.

    Exit codes: 0 all succeeded, or you left with q, 1 something failed, 130 interrupted (the job goes on).
    """
    view = session.client.job(job)
    ended = view if view.state.is_final else watch_to_end(session, view)
    if not isinstance(ended, JobView):
        code = say_stopped(view, ended)
        return 0 if isinstance(ended, Left) else code
    if session.is_json:
        print_json(ended)
    else:
        for line in summary_lines(ended, was_streamed=False):
            echo(line, err=True)
    return exit_code_of(ended, pass_through=pass_exit_code)
