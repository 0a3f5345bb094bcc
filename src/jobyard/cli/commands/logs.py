"""`yard logs`: what did the tasks write?"""

from __future__ import annotations

import click

from jobyard.cli.option_values import OneOf, WholeNumber
from jobyard.cli.output.json import print_json_line
from jobyard.cli.output.tasklog import DirectLog, LogWriter, MergedLog, write_bytes
from jobyard.cli.session import Session, with_session
from jobyard.errors import UserError
from jobyard.wire.views import JobView

STREAMS = ("out", "err")


@click.command("logs")
@with_session
@click.argument("job", metavar="JOB")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--task", metavar="LABEL", help="Only this task, as `yard show --tasks` names it.")
@click.option("--attempt", type=WholeNumber(min=1), metavar="N", help="This attempt; default: the newest.")
@click.option("--stream", type=OneOf(STREAMS), help="Only stdout or only stderr.")
@click.option("--tail", type=WholeNumber(min=0), metavar="N", help="Only the last N lines of each.")
@click.option("--raw", is_flag=True, help="The bytes of one task's stream as they were written; default stdout.")
def command(
    session: Session,
    job: str,
    follow: bool,
    task: str | None,
    attempt: int | None,
    stream: str | None,
    tail: int | None,
    raw: bool,
) -> int:
    """Show what a job's tasks wrote.

    Of one task: its stdout on stdout, its stderr on stderr. Of several: all on stdout, each line after its task.
    """
    view = session.client.job(job)
    is_single = task is not None or view.counts.total == 1
    if raw:
        if not is_single or follow or tail is not None:
            raise UserError(_raw_refusal(view, is_single))
        return _write_raw(session, view.id, task, attempt, (stream or "out",))
    if is_single and not follow and tail is None and not session.is_json:
        return _write_raw(session, view.id, task, attempt, (stream,) if stream else STREAMS)
    chunks = session.client.logs(view.id, task=task, attempt=attempt, stream=stream, follow=follow, tail=tail)
    if session.is_json:
        for chunk in chunks:
            print_json_line(chunk)
        return 0
    writer: LogWriter = DirectLog() if is_single else MergedLog()
    try:
        for chunk in chunks:
            writer.write(chunk)
    finally:
        writer.close()
    return 0


def _raw_refusal(view: JobView, is_single: bool) -> str:
    if is_single:
        return "--raw: it cannot be used with --follow or --tail; leave those out"
    return f"--raw: job {view.id} has {view.counts.total} tasks; name one with --task LABEL"


def _write_raw(session: Session, job: str, task: str | None, attempt: int | None, streams: tuple[str, ...]) -> int:
    for stream in streams:
        for piece in session.client.raw_log(job, task=task, attempt=attempt, stream=stream):
            write_bytes(piece, to_stderr=stream == "err" and len(streams) > 1)
    return 0
