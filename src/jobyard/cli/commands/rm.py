"""`yard rm`: remove jobs that have ended, with all that is kept of them."""

from __future__ import annotations

import click

from jobyard.cli.job_ranges import each_job
from jobyard.cli.option_values import ListOf
from jobyard.cli.output.json import print_json
from jobyard.cli.output.text import echo, say
from jobyard.cli.session import Session, with_session
from jobyard.client.api import YardClient
from jobyard.errors import UserError
from jobyard.model.job import State

FINAL = [state for state in State if state.is_final]
STATES = [state.value.lower() for state in FINAL]
ENDED = "ended"  # as for `yard ls`


@click.command("rm")
@with_session
@click.argument("jobs", nargs=-1, metavar="JOB...")
@click.option(
    "--state",
    "states",
    type=ListOf([*STATES, ENDED]),
    metavar="STATE",
    help=f"All jobs that ended so: {', '.join(STATES)}, or {ENDED} for each of these. Several with commas between.",
)
@click.option("--name", metavar="NAME", help="All jobs of this name that have ended; * stands for any letters.")
def command(session: Session, jobs: tuple[str, ...], states: tuple[str, ...] | None, name: str | None) -> int:
    """Remove jobs that have ended: records, output, code, checkpoints and results that are still in the yard.

    Each JOB is a number, a range as 3-7, an id or its beginning, a name (the newest), or `last`. All of them go, or
    none: what has not ended is refused, and what another job waits for. Results that were put where the job was
    submitted stay there. A machine that is away deletes its files when it is back.
    """
    is_filtered = bool(states or name)
    if is_filtered == bool(jobs):
        raise UserError("rm: name jobs, as in 17 or 3-7, or give --state or --name for all that ended so")
    chosen = _ended(session.client, states or (), name) if is_filtered else each_job(session.client, jobs)
    if not chosen:
        say("no such jobs have ended; nothing was removed")
        return 0
    removed = session.client.remove_jobs(chosen)
    if session.is_json:
        print_json(removed)
        return 0
    for job in removed.jobs:
        echo(f"job {job.number} ({job.name}) removed")
    return 0


def _ended(client: YardClient, words: tuple[str, ...], name: str | None) -> list[str]:
    """The ids of those that there are now."""
    meant = STATES if not words or ENDED in words else words
    wanted = ",".join(state for state in FINAL if state.value.lower() in meant)
    return [job.id for job in client.jobs(all=True, state=wanted, name=name)]
