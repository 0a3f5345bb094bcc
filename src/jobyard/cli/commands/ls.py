"""`yard ls`: which jobs are there?"""

from __future__ import annotations

import click

from jobyard.cli.disk import tell_if_filling
from jobyard.cli.option_values import OneOf, WholeNumber
from jobyard.cli.output.json import print_json
from jobyard.cli.output.table import print_table, say_more
from jobyard.cli.output.text import age, echo, run_time, say, state_text
from jobyard.cli.output.training import progress_text
from jobyard.cli.session import Session, with_session
from jobyard.model.job import State
from jobyard.model.units import show_seconds
from jobyard.wire.views import JobView

HEADERS = ("JOB", "ID", "NAME", "STATE", "DONE", "FAILED", "PRIO", "AGE", "TIME", "ETA", "WHAT")
ROWS_MOST = 50  # of a table, unless -n says otherwise


@click.command("ls")
@with_session
@click.option("-a", "--all", "show_all", is_flag=True, help="Also jobs that ended long ago.")
@click.option("--state", type=OneOf([s.value for s in State], case_sensitive=False), help="Only jobs in this state.")
@click.option("-n", "--limit", type=WholeNumber(min=1), metavar="N", help="At most N jobs, the newest first.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the ids.")
def command(session: Session, show_all: bool, state: str | None, limit: int | None, quiet: bool) -> int:
    """List jobs, the newest first."""
    tell_if_filling(session)
    jobs = session.client.jobs(all=show_all, state=state, limit=limit)
    if session.is_json:
        print_json(jobs)
    elif quiet:
        for job in jobs:
            echo(job.id)
    elif jobs:
        rows = jobs if limit else jobs[:ROWS_MOST]
        print_table(HEADERS, [_row(job) for job in rows])
        say_more(len(jobs) - len(rows))
    else:
        say("no jobs" if show_all else "no jobs; `yard ls --all` shows old ones, `yard run -- CMD` makes one")
    return 0


def _row(job: JobView) -> tuple[str, ...]:
    counts, training = job.counts, job.training
    eta = job.eta_seconds if training is None or training.eta_seconds is None else training.eta_seconds
    waits = not job.state.is_active or job.state is State.STARTING
    what = job.message if job.message and waits else job.command
    return (
        str(job.number),
        job.id,
        job.name,
        state_text(job.state),
        (progress_text(training) if training else "") or f"{counts.done}/{counts.total}",
        str(counts.failed or "-"),
        str(job.priority),
        age(job.submitted_at),
        run_time(job),
        show_seconds(eta) if eta is not None and not job.state.is_final else "-",
        what,
    )
