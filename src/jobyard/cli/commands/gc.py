"""`yard gc`: what is older, or more, than is kept?"""

from __future__ import annotations

import click

from jobyard.cli.output.json import print_json
from jobyard.cli.output.table import print_table
from jobyard.cli.output.text import age, say
from jobyard.cli.session import Session, with_session
from jobyard.model.units import show_bytes
from jobyard.wire.kept import RemovedJob

HEADERS = ("JOB", "NAME", "ENDED", "SIZE", "WHY")
ROWS_MOST = 50  # of a table; the oldest


@click.command("gc")
@with_session
@click.option("--dry-run", is_flag=True, help="Remove nothing; say what would go, why, and how large it is.")
def command(session: Session, dry_run: bool) -> int:
    """Remove jobs that are older, or more, than the yard keeps. The server does the same by itself each hour.

    A job goes 30 days after its end, or 90 if it has results that are only in the yard and that nobody has fetched;
    earlier, if more than 10,000 jobs have ended, or if they take more than 10 GiB. What has not ended stays, what
    another job waits for, and what was submitted with --keep. `yard rm` removes a job at once.
    """
    removed = session.client.collect_garbage(dry_run=dry_run)
    total = sum(job.bytes or 0 for job in removed.jobs)
    if session.is_json:
        print_json({"jobs": removed.jobs, "bytes": total, "dry_run": dry_run})
        return 0
    if removed.jobs:
        print_table(HEADERS, [_row(job) for job in removed.jobs[:ROWS_MOST]])
        if (more := len(removed.jobs) - ROWS_MOST) > 0:
            say(f"... and {more} more (-o json has all)")
    count = len(removed.jobs)
    jobs = "no job" if not count else "1 job" if count == 1 else f"{count} jobs"
    say(f"{jobs}, {show_bytes(total)} {'would go' if dry_run else 'removed'}")
    return 0


def _row(job: RemovedJob) -> tuple[str, ...]:
    ended = age(job.finished_at) if job.finished_at is not None else "-"
    return str(job.number), job.name, ended, show_bytes(job.bytes or 0), job.why
