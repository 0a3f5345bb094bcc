"""`yard joblog`: how did each task end, in GNU parallel's columns?"""

from __future__ import annotations

import click

from jobyard.cli.output.joblog import HEADER, joblog_line
from jobyard.cli.output.json import print_json_line
from jobyard.cli.output.text import echo_text, warn
from jobyard.cli.session import Session, with_session


@click.command("joblog")
@with_session
@click.argument("job", metavar="JOB")
def command(session: Session, job: str) -> int:
    """Print a line for each task in the order in which they ended, as `yard run --joblog` writes them to a file.

    Of a job that runs: until it has ended. The columns are Seq, Host, Starttime, JobRuntime, Send, Receive, Exitval,
    Signal and Command, with tabs between.
    """
    view, lines = session.client.job(job), 0
    if not session.is_json:
        echo_text(f"{HEADER}\n")
    for ending in session.client.endings(view.id):
        lines += 1
        if session.is_json:
            print_json_line(ending)
        else:
            echo_text(f"{joblog_line(ending)}\n")
    counts = session.client.job(view.id).counts
    if missing := max(0, counts.succeeded + counts.failed - lines):
        warn(f"{missing} of the tasks ended so long ago that the journal has no line of them")
    return 0
