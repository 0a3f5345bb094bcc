"""`yard wait`: wait until jobs have ended."""

from __future__ import annotations

import time

import click

from jobyard.cli.follow import say_stopped, watch_to_end
from jobyard.cli.job_ranges import each_job
from jobyard.cli.output.json import print_json
from jobyard.cli.output.summary import exit_code_of, summary_lines, title
from jobyard.cli.output.text import echo, say
from jobyard.cli.session import Session, with_session
from jobyard.model.units import parse_duration_seconds
from jobyard.wire.views import JobView

TIMED_OUT = 124  # as timeout(1) says it


@click.command("wait")
@with_session
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option("--timeout", metavar="TIME", help="Give up after this long (exit code 124); the jobs go on.")
@click.option("--exit-code", "pass_exit_code", is_flag=True, help="Exit with a single task's own code.")
def command(session: Session, jobs: tuple[str, ...], timeout: str | None, pass_exit_code: bool) -> int:
    """Wait until jobs have ended. Each JOB is a number, a range as 3-7, an id or its beginning, a name, or `last`.

    A terminal shows the live view of the one that is waited for, as `yard attach`: q leaves, c cancels after asking.

    Exit codes: 0 all succeeded, 1 something failed, 124 timed out, 130 interrupted (the jobs go on).
    """
    deadline = None if timeout is None else time.monotonic() + parse_duration_seconds(timeout, "--timeout")
    views = list({view.id: view for view in map(session.client.job, each_job(session.client, jobs))}.values())
    ended: list[JobView] = []
    for view in views:
        now = view if view.state.is_final else watch_to_end(session, view, deadline=deadline)
        if not isinstance(now, JobView):
            return say_stopped(view, now)
        ended.append(now)
    unfinished = [view for view in ended if not view.state.is_final]
    if session.is_json:
        print_json(ended)
    else:
        for view in ended:
            if view.state.is_final:
                for line in summary_lines(view, was_streamed=False):
                    echo(line, err=True)
    for view in unfinished:
        say(f"{title(view)} has not ended after {timeout}; it {view.state.told}")
    codes = [exit_code_of(view, pass_through=pass_exit_code and len(ended) == 1) for view in ended]
    return TIMED_OUT if unfinished else max(codes)
