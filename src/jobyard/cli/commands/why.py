"""`yard why`: why does a job wait, or why did it end as it did?"""

from __future__ import annotations

import click

from jobyard.cli.output.json import print_json
from jobyard.cli.output.summary import failure_in_full
from jobyard.cli.output.text import because, echo, state_text
from jobyard.cli.session import Session, with_session
from jobyard.model.task_ranges import job_and_tasks


@click.command("why")
@with_session
@click.argument("selector", metavar="JOB[/TASK]")
def command(session: Session, selector: str) -> int:
    """Say why a job, or one of its tasks, waits, or why it ended as it did."""
    job, task = job_and_tasks(selector)
    view = session.client.why(job, task=task)
    if session.is_json:
        print_json(view)
        return 0
    named = f"task {task} of job" if task else "job"
    echo(f"{named} {view.number or view.job} is ", state_text(view.state), because(view.state, view.reason))
    for sentence in view.sentences:
        echo(f"- {sentence}")
    if view.first_failure is not None:
        for line in failure_in_full(view.first_failure)[1 if task else 0 :]:  # the first says what was said already
            echo(line.removeprefix("yard: "))
    return 0
