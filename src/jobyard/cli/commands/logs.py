"""`yard logs`: what did the tasks write?"""

from __future__ import annotations

from dataclasses import dataclass

import click

from jobyard.cli.option_values import OneOf, WholeNumber
from jobyard.cli.output.json import print_json_line
from jobyard.cli.output.silence import say_no_failed_output
from jobyard.cli.output.tasklog import DamageNotes, DirectLog, LogWriter, MarkedLog, MergedLog, write_bytes
from jobyard.cli.session import Session, with_session
from jobyard.errors import OutputDamaged, UserError
from jobyard.model.task_ranges import job_and_tasks, names_one_task
from jobyard.wire.views import JobView

STREAMS = ("out", "err")


@dataclass(frozen=True)
class LogWords:
    """One `yard logs` as it was typed."""

    follow: bool
    task: str | None  # all of them as the server reads them: `3,7-9`
    failed: bool
    attempt: int | None
    stream: str | None
    tail: int | None
    no_prefix: bool
    timestamps: bool
    raw: bool

    @property
    def is_all_of_failed(self) -> bool:
        return self.failed and self.attempt is None and self.stream is None and self.tail != 0

    def is_single(self, view: JobView) -> bool:
        return view.counts.total == 1 or (self.task is not None and names_one_task(self.task))


@click.command("logs")
@with_session
@click.argument("selector", metavar="JOB[/TASKS]")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "--task", "tasks", multiple=True, metavar="LABELS", help="Only these tasks, as in 3,7-9; may be repeated."
)
@click.option("--failed", is_flag=True, help="Only tasks that have failed.")
@click.option("--attempt", type=WholeNumber(min=1), metavar="N", help="This attempt; default: the newest.")
@click.option("--stream", type=OneOf(STREAMS), help="Only stdout or only stderr.")
@click.option("--tail", type=WholeNumber(min=0), metavar="N", help="Only the last N lines of each.")
@click.option("--no-prefix", is_flag=True, help="Of several tasks: lines without the task before them.")
@click.option("--timestamps", is_flag=True, help="With --follow: when each line came.")
@click.option("--raw", is_flag=True, help="The bytes of one task's stream as they were written; default stdout.")
def command(session: Session, selector: str, tasks: tuple[str, ...], **given: object) -> int:
    """Show what a job's tasks wrote; JOB/TASKS, as in 17/3 or 17/3-7: only those.

    Of one task: its stdout on stdout, its stderr on stderr. Of several: all on stdout, each line after its task, as it
    comes; `yard cat` prints them whole, one task after another. With --follow a line on stderr says when a further
    attempt begins.
    """
    job, task = job_and_tasks(selector, tasks)
    asked = LogWords(task=task or None, **given)  # type: ignore[arg-type]
    _refuse_contradictions(asked)
    view = session.client.job(job)
    is_single = asked.is_single(view)
    if asked.raw:
        if not is_single or asked.follow or asked.tail is not None or asked.failed:
            raise UserError(_raw_refusal(view, is_single))
        return _write_raw(session, view.id, asked, (asked.stream or "out",))
    if is_single and not (asked.follow or asked.failed) and asked.tail is None and not session.is_json:
        return _write_raw(session, view.id, asked, (asked.stream,) if asked.stream else STREAMS)
    chunks = session.client.logs(
        view.id,
        task=asked.task,
        attempt=asked.attempt,
        stream=asked.stream,
        follow=asked.follow,
        tail=asked.tail,
        failed=asked.failed,
    )
    damages, is_silent = DamageNotes(), True
    writer = None if session.is_json else _writer(asked, is_single=is_single)
    try:
        for chunk in chunks:
            damages.note(chunk)
            is_silent = is_silent and not (chunk.data or chunk.damage)
            if writer is None:
                print_json_line(chunk)
            else:
                writer.write(chunk)
    finally:
        if writer is not None:
            writer.close()
    if is_silent and asked.is_all_of_failed:
        say_no_failed_output(view, asked.task)
    return 1 if damages.told else 0


def _refuse_contradictions(asked: LogWords) -> None:
    """Raises UserError before anything is asked of the yard."""
    if asked.timestamps and not asked.follow:
        raise UserError(
            "--timestamps: when a line was written is not recorded; with --follow each has the time at which it came"
        )
    if asked.failed and asked.follow:
        raise UserError("--failed: it is for tasks that have failed already; leave --failed or --follow out")


def _writer(asked: LogWords, *, is_single: bool) -> LogWriter:
    names_tasks = not (is_single or asked.no_prefix)
    if is_single and not asked.timestamps:
        log: LogWriter = DirectLog()
    else:
        log = MergedLog(names_tasks=names_tasks, has_times=asked.timestamps)
    return MarkedLog(log) if asked.follow else log


def _raw_refusal(view: JobView, is_single: bool) -> str:
    if is_single:
        return "--raw: it cannot be used with --follow, --tail or --failed; leave those out"
    return f"--raw: job {view.number} has {view.counts.total} tasks; name one, as in {view.number}/TASK"


def _write_raw(session: Session, job: str, asked: LogWords, streams: tuple[str, ...]) -> int:
    """One stream that cannot be had keeps nobody from the other one."""
    refusals: dict[str, OutputDamaged] = {}
    for stream in streams:
        try:
            for piece in session.client.raw_log(job, task=asked.task, attempt=asked.attempt, stream=stream):
                write_bytes(piece, to_stderr=stream == "err" and len(streams) > 1)
        except OutputDamaged as error:
            refusals[str(error)] = error
    for refusal in refusals.values():
        raise refusal
    return 0
