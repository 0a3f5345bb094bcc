"""`yard cancel`: stop jobs or some of their tasks."""

from __future__ import annotations

import click

from jobyard.cli.output.json import print_json
from jobyard.cli.output.summary import title
from jobyard.cli.output.text import echo, say
from jobyard.cli.session import Session, with_session
from jobyard.errors import UserError
from jobyard.wire.views import JobView


@click.command("cancel")
@with_session
@click.argument("jobs", nargs=-1, metavar="JOB...")
@click.option("--task", "tasks", multiple=True, metavar="LABEL", help="Only this task; may be repeated.")
@click.option("--force", is_flag=True, help="Kill at once, without the grace.")
@click.option(
    "--checkpoint", is_flag=True, help="Stop at the next checkpoint and wait in the queue again, behind the others."
)
@click.option("--all", "all_jobs", is_flag=True, help="Every job that has not ended.")
def command(
    session: Session, jobs: tuple[str, ...], tasks: tuple[str, ...], force: bool, checkpoint: bool, all_jobs: bool
) -> int:
    """Stop jobs or some of their tasks. Each JOB is a number, an id or its beginning, a name, or `last`.

    Returns when the request is on disk; `yard wait JOB` waits for the end. Of a job that has ended it says so, and that
    is no error.
    """
    if all_jobs == bool(jobs):
        raise UserError("cancel: name jobs, or give --all for every job that has not ended")
    if tasks and len(jobs) != 1:
        raise UserError("--task: name exactly one job whose tasks are meant")
    if checkpoint:
        if tasks or force or all_jobs:
            other = "--task" if tasks else "--force" if force else "--all"
            raise UserError(f"--checkpoint: it is for whole jobs that you name; leave {other} out")
        return _stop_at_checkpoint(session, _targets(session, jobs))
    targets = _targets(session, jobs)
    ended = {view.id for view in targets if view.state.is_final}
    asked = [session.client.cancel(view.id, tasks=tasks, force=force) for view in targets]
    if session.is_json:
        print_json(asked)
        return 0
    for view in asked:
        echo(_sentence(view, tasks, has_ended=view.id in ended))
    if not asked:
        say("nothing to cancel")
    return 0


def _stop_at_checkpoint(session: Session, targets: list[JobView]) -> int:
    """Preempt all jobs that can stop at a checkpoint; those that cannot are named together, in one error."""
    asked, refusals = [], []
    for view in targets:
        try:
            asked.append(session.client.yield_job(view.id))
        except UserError as error:
            refusals.append(str(error))
    if session.is_json:
        print_json(asked)
    else:
        for view in asked:
            echo(f"{title(view)} stops at its next checkpoint and waits again")
    if refusals:
        raise UserError("; ".join(refusals))
    return 0


def _targets(session: Session, jobs: tuple[str, ...]) -> list[JobView]:
    """All are looked up first, so that after a misspelt name nothing is cancelled."""
    if jobs:
        found = (session.client.job(name, live=True) for name in jobs)
        return list({view.id: view for view in found}.values())
    return list(session.client.jobs(unfinished=True))


def _sentence(view: JobView, tasks: tuple[str, ...], *, has_ended: bool) -> str:
    if has_ended:
        return f"{title(view)} had ended before ({view.state.value.lower()}): nothing was cancelled"
    if tasks:
        return f"{title(view)}: stopping task{'s' if len(tasks) > 1 else ''} {', '.join(tasks)}"
    return f"{title(view)} {view.state.told}"
