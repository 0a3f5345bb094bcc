"""`yard cancel`: stop jobs or some of their tasks."""

from __future__ import annotations

import click

from jobyard.cli.output.json import print_json
from jobyard.cli.output.summary import title
from jobyard.cli.output.text import echo, say
from jobyard.cli.session import Session, with_session
from jobyard.cli.task_selectors import Selected, selected
from jobyard.errors import UserError
from jobyard.model.job import State
from jobyard.model.task_ranges import names_one_task
from jobyard.wire.views import JobView


@click.command("cancel")
@with_session
@click.argument("jobs", nargs=-1, metavar="JOB...")
@click.option("--task", "tasks", multiple=True, metavar="LABEL", help="Only this task, as JOB/LABEL; may be repeated.")
@click.option("--pending", "is_pending", is_flag=True, help="Only tasks that wait.")
@click.option("--running", "is_running", is_flag=True, help="Only tasks that run.")
@click.option("--force", is_flag=True, help="Kill at once, without the grace.")
@click.option(
    "--checkpoint", is_flag=True, help="Stop at the next checkpoint and wait in the queue again, behind the others."
)
@click.option("--all", "all_jobs", is_flag=True, help="Every job that has not ended.")
def command(
    session: Session,
    jobs: tuple[str, ...],
    tasks: tuple[str, ...],
    is_pending: bool,
    is_running: bool,
    force: bool,
    checkpoint: bool,
    all_jobs: bool,
) -> int:
    """Stop jobs or some of their tasks. Each JOB is a number, a range as 3-7, an id or its beginning, a name, or
    `last`; with tasks behind it as in 17/3, 17/3-7 or train/0,4.

    Returns when the request is on disk; `yard wait JOB` waits for the end. Of a job that has ended it says so, and that
    is no error.
    """
    if all_jobs == bool(jobs):
        raise UserError("cancel: name jobs, or give --all for every job that has not ended")
    states = _states(is_pending=is_pending, is_running=is_running)
    if checkpoint and (force or all_jobs or states):
        other = "--force" if force else "--all" if all_jobs else "--pending" if is_pending else "--running"
        raise UserError(f"--checkpoint: it is for whole jobs that you name; leave {other} out")
    if checkpoint and (tasks or any("/" in job for job in jobs)):
        raise UserError("--checkpoint: it is for whole jobs that you name; leave the tasks out")
    targets = _targets(session, jobs, tasks)
    if checkpoint:
        return _stop_at_checkpoint(session, [target.view for target in targets])
    asked = _cancelled(session, targets, states, force=force)
    if session.is_json:
        print_json(list(asked.values()))
        return 0
    for target in targets:
        if (view := asked.get(target.view.id)) is not None:
            echo(_sentence(view, target, states))
    if not asked:
        say("nothing to cancel")
    return 0


def _cancelled(
    session: Session, targets: list[Selected], states: tuple[State, ...], *, force: bool
) -> dict[str, JobView]:
    """The jobs as they are then, by id. Whole jobs are one request: the scheduler plans once."""
    whole = [target.view.id for target in targets if not target.tasks]
    asked = {view.id: view for view in session.client.cancel_jobs(whole, states=states, force=force)}
    for target in targets:
        if target.tasks:
            asked[target.view.id] = session.client.cancel(
                target.view.id, tasks=target.tasks, states=states, force=force
            )
    return {target.view.id: asked[target.view.id] for target in targets if target.view.id in asked}


def _states(*, is_pending: bool, is_running: bool) -> tuple[State, ...]:
    return (State.PENDING,) * is_pending + (State.STARTING, State.RUNNING) * is_running


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


def _targets(session: Session, jobs: tuple[str, ...], tasks: tuple[str, ...]) -> list[Selected]:
    if jobs:
        return selected(session, jobs, tasks, is_live=True)
    return [Selected(view) for view in session.client.jobs(unfinished=True)]


def _sentence(view: JobView, target: Selected, states: tuple[State, ...]) -> str:
    if target.view.state.is_final:
        return f"{title(view)} had ended before ({view.state.value.lower()}): nothing was cancelled"
    which = " that wait" if states == (State.PENDING,) else " that run" if State.PENDING not in states else ""
    if target.tasks:
        named = ", ".join(target.tasks)
        is_one = len(target.tasks) == 1 and names_one_task(named)
        return f"{title(view)}: stopping task{'' if is_one else 's'} {named}{which if states else ''}"
    if states:
        return f"{title(view)}: stopping its tasks{which}"
    return f"{title(view)} {view.state.told}"
