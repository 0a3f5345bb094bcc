"""`yard retry`: run what failed once more."""

from __future__ import annotations

import click

from jobyard.cli.follow import FollowOptions, run_to_end
from jobyard.cli.output.json import print_json
from jobyard.cli.output.summary import title
from jobyard.cli.output.text import counts_text, echo, say
from jobyard.cli.session import Session, with_session
from jobyard.cli.task_selectors import Selected, selected
from jobyard.errors import UserError
from jobyard.model.job import Reason, State
from jobyard.wire.views import JobView


@click.command("retry")
@with_session
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option("--task", "tasks", multiple=True, metavar="LABEL", help="Only this task, as JOB/LABEL; may be repeated.")
@click.option("--failed", "is_failed", is_flag=True, help="Only tasks that failed, and none that were cancelled.")
@click.option("--cancelled", "is_cancelled", is_flag=True, help="Only tasks that were cancelled.")
@click.option("-f", "--follow", is_flag=True, help="Follow the job to its end, as `yard run` does.")
@click.option("--exit-code", "pass_exit_code", is_flag=True, help="With --follow: exit with a single task's own code.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the number.")
def command(
    session: Session,
    jobs: tuple[str, ...],
    tasks: tuple[str, ...],
    is_failed: bool,
    is_cancelled: bool,
    follow: bool,
    pass_exit_code: bool,
    quiet: bool,
) -> int:
    """Run the tasks of jobs that failed or were cancelled once more; JOB/TASKS, as in 17/3 or 17/3-7: these, also if
    they succeeded. A job that still stops is waited for."""
    states = (State.FAILED,) * is_failed + (State.CANCELLED,) * is_cancelled
    chosen = selected(session, jobs, tasks, is_live=False)
    if follow and len(chosen) != 1:
        raise UserError("--follow: one job can be followed; name one, or leave --follow out and use `yard wait`")
    for each in chosen:
        _await_stop(session, each.view)
    if follow:
        options = FollowOptions(is_quiet=quiet, pass_exit_code=pass_exit_code)
        return run_to_end(session, lambda: _retry(session, chosen[0], states), options)
    views = [_retry(session, each, states) for each in chosen]
    if session.is_json:
        print_json(views[0] if len(views) == 1 else views)
        return 0
    for view in views:
        echo(str(view.number) if quiet else f"{title(view)} tries again: {counts_text(view.counts)}")
    return 0


def _retry(session: Session, each: Selected, states: tuple[State, ...]) -> JobView:
    return session.client.retry(each.view.id, tasks=each.tasks, states=states)


def _await_stop(session: Session, view: JobView) -> None:
    """Returns once the job does not stop any more: `yard cancel JOB && yard retry JOB` is meant as it is written."""
    if view.state is State.STOPPING and view.reason not in (Reason.PREEMPTED, Reason.RESIZING):
        say(f"{title(view)} still stops; it is tried again after that")
        next((each for each in session.client.watch(view.id) if each.state is not State.STOPPING), None)
