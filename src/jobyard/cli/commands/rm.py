"""`yard rm`: remove jobs that have ended, with all that is kept of them."""

from __future__ import annotations

import click

from jobyard.cli.output.json import print_json
from jobyard.cli.output.text import echo
from jobyard.cli.session import Session, with_session


@click.command("rm")
@with_session
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
def command(session: Session, jobs: tuple[str, ...]) -> int:
    """Remove jobs that have ended: records, output, code, checkpoints and results that are still in the yard.

    Each JOB is a number, an id or its beginning, a name (the newest), or `last`. All of them go, or none: what has not
    ended is refused, and what another job waits for. Results that were put where the job was submitted stay there. A
    machine that is away deletes its files when it is back.
    """
    removed = session.client.remove_jobs(jobs)
    if session.is_json:
        print_json(removed)
        return 0
    for job in removed.jobs:
        echo(f"job {job.number} ({job.name}) removed")
    return 0
