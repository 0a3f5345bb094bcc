"""`yard ls`: which jobs are there?"""

from __future__ import annotations

import time

import click

from jobyard.cli.disk import tell_if_filling
from jobyard.cli.option_values import OneOf, WholeNumber
from jobyard.cli.output.job_rows import JOB_HEADERS, SPARE_JOB_HEADERS, job_row
from jobyard.cli.output.json import print_json
from jobyard.cli.output.table import print_table
from jobyard.cli.output.text import echo, say
from jobyard.cli.session import Session, with_session
from jobyard.client.api import PAGE_MOST, YardClient
from jobyard.model.job import State
from jobyard.model.units import parse_duration_seconds
from jobyard.wire.views import JobView

ROWS_MOST = 50  # of a table, unless -n says otherwise
FAILURES_MOST = 5  # that are shown below, where newer jobs would hide them
FAILED_WITHIN_SECONDS = 3 * 86400.0  # over a weekend


@click.command("ls")
@with_session
@click.option("-a", "--all", "show_all", is_flag=True, help="Also jobs that ended long ago.")
@click.option(
    "--state",
    type=OneOf([state.value for state in State], case_sensitive=False),
    metavar="STATE",
    help=f"Only jobs in this state: {', '.join(state.value.lower() for state in State)}.",
)
@click.option("--user", metavar="NAME", help="Only jobs that this user submitted.")
@click.option("--name", metavar="NAME", help="Only jobs of this name; * stands for any letters.")
@click.option("--since", metavar="TIME", help="Leave out what ended longer ago than this, as in 2h or 3d.")
@click.option("-n", "--limit", type=WholeNumber(min=1), metavar="N", help="At most N jobs, the newest first.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the ids.")
def command(
    session: Session,
    show_all: bool,
    state: str | None,
    user: str | None,
    name: str | None,
    since: str | None,
    limit: int | None,
    quiet: bool,
) -> int:
    """List jobs, the newest first: what has not ended, and what ended last. A filter looks among all of them."""
    tell_if_filling(session)
    start = None if since is None else time.time() - parse_duration_seconds(since, "--since")
    is_filtered = any((state, user, name, since))
    show_all = show_all or is_filtered
    if session.is_json or quiet:
        jobs = session.client.jobs(all=show_all, state=state, user=user, name=name, since=start, limit=limit)
        if session.is_json:
            print_json(jobs)
        else:
            for job in jobs:
                echo(job.id)
        return 0
    most = min(limit or ROWS_MOST, PAGE_MOST)
    jobs, total = session.client.first_jobs(most, all=show_all, state=state, user=user, name=name, since=start)
    if not show_all:
        jobs += _other_failures(session.client, jobs)
    if jobs:
        print_table(JOB_HEADERS, [job_row(job) for job in jobs], spare=SPARE_JOB_HEADERS)
        _say_more(total - len(jobs), show_all=show_all)
    elif is_filtered:
        say("no such jobs; `yard ls --all` shows every job")
    else:
        say("no jobs" if show_all else "no jobs; `yard ls --all` shows old ones, `yard run -- CMD` makes one")
    return 0


def _other_failures(client: YardClient, jobs: tuple[JobView, ...]) -> tuple[JobView, ...]:
    """What failed of late and is not among these."""
    since = time.time() - FAILED_WITHIN_SECONDS
    failed, _ = client.first_jobs(FAILURES_MOST, all=True, state=State.FAILED, since=since)
    shown = {job.id for job in jobs}
    return tuple(job for job in failed if job.id not in shown)


def _say_more(jobs: int, *, show_all: bool) -> None:
    if jobs > 0:
        say(f"... and {jobs} more ({'-n N' if show_all else '-a shows what ended long ago too, -n N'} shows N jobs)")
