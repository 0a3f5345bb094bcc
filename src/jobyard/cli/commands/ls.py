"""`yard ls`: which jobs are there?"""

from __future__ import annotations

import time

import click

from jobyard.cli.disk import tell_if_filling
from jobyard.cli.option_values import ListOf, WholeNumber
from jobyard.cli.output.job_rows import JOB_HEADERS, SPARE_JOB_HEADERS, job_row
from jobyard.cli.output.json import print_json
from jobyard.cli.output.table import print_table
from jobyard.cli.output.text import echo, say
from jobyard.cli.points_in_time import parse_since
from jobyard.cli.session import Session, with_session
from jobyard.client.api import YardClient
from jobyard.model.job import ACTIVE, FINAL, State
from jobyard.model.limits import PAGE_MOST
from jobyard.wire.views import JobView

ROWS_MOST = 50  # of a table, unless -n says otherwise
FAILURES_MOST = 5  # that are shown below, where newer jobs would hide them
FAILED_WITHIN_SECONDS = 3 * 86400.0  # over a weekend
WHAT_COLUMNS = 80  # of a command in a pipe; -o json has it whole
STATES = [state.value.lower() for state in State]
SEVERAL_STATES = {
    "active": [state for state in State if state in ACTIVE],
    "unfinished": [state for state in State if state not in FINAL],
    "ended": [state for state in State if state in FINAL],
}


@click.command("ls")
@with_session
@click.option("-a", "--all", "show_all", is_flag=True, help="Also jobs that ended long ago.")
@click.option(
    "--state",
    "states",
    type=ListOf([*STATES, *SEVERAL_STATES]),
    metavar="STATE",
    help=f"Only jobs in this state: {', '.join(STATES)}; or {', '.join(SEVERAL_STATES)}. Several with commas between.",
)
@click.option("--user", metavar="NAME", help="Only jobs that this user submitted.")
@click.option("--name", metavar="NAME", help="Only jobs of this name; * stands for any letters.")
@click.option(
    "--since",
    metavar="TIME",
    help="Leave out what ended before: 2h or 3d (ago), today, yesterday, or a date as 2026-11-18.",
)
@click.option("-n", "--limit", type=WholeNumber(min=1), metavar="N", help="At most N jobs, the newest first.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the numbers.")
def command(
    session: Session,
    show_all: bool,
    states: tuple[str, ...] | None,
    user: str | None,
    name: str | None,
    since: str | None,
    limit: int | None,
    quiet: bool,
) -> int:
    """List jobs, the newest first: what has not ended, and what ended last. A filter looks among all of them."""
    tell_if_filling(session)
    start = None if since is None else parse_since(since, "--since", time.time())
    state = _wanted(states) if states else None
    is_filtered = any((state, user, name, since))
    show_all = show_all or is_filtered
    if session.is_json or quiet:
        jobs = session.client.jobs(all=show_all, state=state, user=user, name=name, since=start, limit=limit)
        if session.is_json:
            print_json(jobs)
        else:
            for job in jobs:
                echo(str(job.number))
        return 0
    most = min(limit or ROWS_MOST, PAGE_MOST)
    jobs, total = session.client.first_jobs(most, all=show_all, state=state, user=user, name=name, since=start)
    if not show_all:
        jobs += _other_failures(session.client, jobs)
    if jobs:
        rows = [job_row(job) for job in jobs]
        print_table(JOB_HEADERS, rows, spare=SPARE_JOB_HEADERS, last_in_pipe=WHAT_COLUMNS)
        _say_more(total - len(jobs), show_all=show_all)
    elif is_filtered:
        say("no such jobs; `yard ls --all` shows every job")
    else:
        say("no jobs" if show_all else "no jobs; `yard ls --all` shows old ones, `yard run -- CMD` makes one")
    return 0


def _wanted(words: tuple[str, ...]) -> str:
    """As the server reads states."""
    meant = {state.value.lower(): [state] for state in State} | SEVERAL_STATES
    return ",".join(dict.fromkeys(state for word in words for state in meant[word]))


def _other_failures(client: YardClient, jobs: tuple[JobView, ...]) -> tuple[JobView, ...]:
    """What failed of late and is not among these."""
    since = time.time() - FAILED_WITHIN_SECONDS
    failed, _ = client.first_jobs(FAILURES_MOST, all=True, state=State.FAILED, since=since)
    shown = {job.id for job in jobs}
    return tuple(job for job in failed if job.id not in shown)


def _say_more(jobs: int, *, show_all: bool) -> None:
    if jobs > 0:
        say(f"... and {jobs} more ({'-n N' if show_all else '-a shows what ended long ago too, -n N'} shows N jobs)")
