"""`yard retry`: run what failed once more."""

from __future__ import annotations

import click

from jobyard.cli.follow import FollowOptions, run_to_end
from jobyard.cli.output.json import print_json
from jobyard.cli.output.summary import title
from jobyard.cli.output.text import counts_text, echo, say
from jobyard.cli.session import Session, with_session
from jobyard.model.job import Reason, State


@click.command("retry")
@with_session
@click.argument("job", metavar="JOB")
@click.option("--task", "tasks", multiple=True, metavar="LABEL", help="Only this task; may be repeated.")
@click.option("-f", "--follow", is_flag=True, help="Follow the job to its end, as `yard run` does.")
@click.option("--exit-code", "pass_exit_code", is_flag=True, help="With --follow: exit with a single task's own code.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the id.")
def command(session: Session, job: str, tasks: tuple[str, ...], follow: bool, pass_exit_code: bool, quiet: bool) -> int:
    """Run the tasks of a job that failed or were cancelled once more. A job that still stops is waited for."""
    job = _stopped(session, job)
    if follow:
        options = FollowOptions(is_quiet=quiet, pass_exit_code=pass_exit_code)
        return run_to_end(session, lambda: session.client.retry(job, tasks=tasks), options)
    view = session.client.retry(job, tasks=tasks)
    if session.is_json:
        print_json(view)
    else:
        echo(view.id if quiet else f"{title(view)} tries again: {counts_text(view.counts)}")
    return 0


def _stopped(session: Session, job: str) -> str:
    """The job's id, once it does not stop any more: `yard cancel JOB && yard retry JOB` is meant as it is written."""
    view = session.client.job(job)
    if view.state is State.STOPPING and view.reason not in (Reason.PREEMPTED, Reason.RESIZING):
        say(f"{title(view)} still stops; it is tried again after that")
        next((each for each in session.client.watch(view.id) if each.state is not State.STOPPING), None)
    return view.id
