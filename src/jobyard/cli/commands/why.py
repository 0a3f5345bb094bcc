"""`yard why`: why does a job wait, or why did it end as it did?"""

from __future__ import annotations

import click

from jobyard.cli.output.json import print_json
from jobyard.cli.output.summary import failure_lines
from jobyard.cli.output.text import echo, state_text
from jobyard.cli.session import Session, with_session


@click.command("why")
@with_session
@click.argument("job", metavar="JOB")
def command(session: Session, job: str) -> int:
    """Say why a job waits, or why it ended as it did."""
    view = session.client.why(job)
    if session.is_json:
        print_json(view)
        return 0
    reason = f" ({view.reason.value})" if view.reason else ""
    echo(f"job {view.job} is ", state_text(view.state), reason)
    for sentence in view.sentences:
        echo(f"- {sentence}")
    if view.first_failure is not None:
        for line in failure_lines(view.first_failure):
            echo(line.removeprefix("yard: "))
    return 0
