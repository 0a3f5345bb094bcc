"""`yard run`: submit and follow to the end."""

from __future__ import annotations

import click

from jobyard.cli.commands.submit import submit_detached, submit_now
from jobyard.cli.follow import FollowOptions, run_to_end
from jobyard.cli.session import Session, with_session
from jobyard.cli.submitting import Asked, FileOrCommand, show_plan, spec_of, submit_flags


@click.command("run", cls=FileOrCommand)
@with_session
@submit_flags
@click.option("--dry-run", is_flag=True, help="Show what would be submitted and where it would go.")
@click.option("--render", is_flag=True, help="Show what would be sent to the executor.")
@click.option("--exit-code", "pass_exit_code", is_flag=True, help="Exit with a single task's own code.")
@click.option("-d", "--detach", is_flag=True, help="Do not follow: as `yard submit`.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the id.")
def command(
    session: Session, asked: Asked, dry_run: bool, render: bool, pass_exit_code: bool, detach: bool, quiet: bool
) -> int:
    """Submit a job and follow it to its end.

    FILE is a batch file (one bash command per line), a manifest, or - for stdin. The output of a job of one task is
    shown as if it ran here; a job of several has a live display. Ctrl-C cancels the job, twice kills it.

    Exit codes: 0 all succeeded, 1 something failed, 2 bad request, 3 yard not reachable, 130 interrupted.
    """
    spec = spec_of(asked, session)
    if dry_run or render:
        return show_plan(session, spec, render=render)
    if detach:
        return submit_detached(session, spec, quiet=quiet)
    options = FollowOptions(is_quiet=quiet, pass_exit_code=pass_exit_code)
    return run_to_end(session, lambda: submit_now(session, spec, quiet=quiet), options)
