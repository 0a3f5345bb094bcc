"""`yard submit`: submit and return."""

from __future__ import annotations

import click

from jobyard.cli.default_cluster import add_default_cluster
from jobyard.cli.output.json import print_json
from jobyard.cli.session import Session, with_session
from jobyard.cli.submitting import Asked, FileOrCommand, say_notes, show_plan, spec_of, submit_flags
from jobyard.model.job import JobSpec
from jobyard.wire.views import JobView


@click.command("submit", cls=FileOrCommand)
@with_session
@submit_flags
@click.option("--dry-run", is_flag=True, help="Show what would be submitted and where it would go.")
@click.option("--render", is_flag=True, help="Show what would be sent to the executor.")
@click.option("--exit-code", "pass_exit_code", is_flag=True, hidden=True, help="Means something to `yard run` only.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the id, no notes.")
def command(session: Session, asked: Asked, dry_run: bool, render: bool, pass_exit_code: bool, quiet: bool) -> int:
    """Submit a job, print its id and return.

    FILE is a batch file (one bash command per line), a manifest, or - for stdin. The job is on disk when this returns.
    """
    spec = spec_of(asked, session)
    if dry_run or render:
        return show_plan(session, spec, render=render)
    return submit_detached(session, spec, quiet=quiet)


def submit_detached(session: Session, spec: JobSpec, *, quiet: bool) -> int:
    add_default_cluster(session, spec, quiet=quiet)
    job = session.client.submit(spec)
    if session.is_json:
        print_json(job)
        return 0
    click.echo(job.id)
    if not quiet:
        say_notes(job)
    return 0


def submit_now(session: Session, spec: JobSpec, *, quiet: bool) -> JobView:
    """For who follows: the id alone where it was asked for, else the notes."""
    add_default_cluster(session, spec, quiet=quiet)
    job = session.client.submit(spec)
    if not quiet:
        say_notes(job)
    elif not session.is_json:
        click.echo(job.id)
    return job
