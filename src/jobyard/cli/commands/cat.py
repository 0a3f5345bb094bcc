"""`yard cat`: what did all tasks of a job, or some, write, in their order?"""

from __future__ import annotations

from collections.abc import Iterator

import click

from jobyard.cli.feed import Feed, StreamBroken, StreamEnded
from jobyard.cli.output.json import print_json_line
from jobyard.cli.output.pipe import nobody_reads
from jobyard.cli.output.silence import say_no_failed_output
from jobyard.cli.output.summary import exit_code_of, own_exit_code
from jobyard.cli.output.tasklog import DamageNotes, DirectLog
from jobyard.cli.session import Session, with_session
from jobyard.client.api import YardClient
from jobyard.model.job import State
from jobyard.model.task_ranges import job_and_tasks, names_one_task
from jobyard.wire.views import JobView, LogChunk

TICK_SECONDS = 0.5  # so often it is looked whether anybody still reads


@click.command("cat")
@with_session
@click.argument("selector", metavar="JOB[/TASKS]")
@click.option(
    "--task", "tasks", multiple=True, metavar="LABELS", help="Only these tasks, as in 3,7-9; may be repeated."
)
@click.option("--failed", "only_failed", is_flag=True, help="Only tasks that have failed, without waiting for others.")
@click.option("--exit-code", "pass_exit_code", is_flag=True, help="Exit with a single task's own code.")
def command(session: Session, selector: str, tasks: tuple[str, ...], only_failed: bool, pass_exit_code: bool) -> int:
    """Print what a job's tasks wrote, one task after another: stdout on stdout, stderr on stderr. JOB/TASKS, as in 17/3
    or 17/3-7: only those.

    A task's output comes once it and all tasks before it have ended, so that it can be piped to another program. When
    that one closes the pipe, as `head` does, this ends with exit code 0, and the job goes on.

    Exit codes: 0 all succeeded, 1 something failed or output cannot be read any more, 130 interrupted (the job goes
    on).
    """
    job, asked = job_and_tasks(selector, tasks)
    damages = DamageNotes()
    try:
        ended = _print(session, session.client.job(job), asked, damages, only_failed=only_failed)
    except BrokenPipeError:
        return 0
    if asked or only_failed:
        code = _exit_code_of_tasks(session.client, ended, asked, pass_through=pass_exit_code)
    else:
        code = exit_code_of(ended, pass_through=pass_exit_code)
    return code or (1 if damages.told else 0)


def _exit_code_of_tasks(client: YardClient, view: JobView, asked: str, *, pass_through: bool) -> int:
    """Of tasks that have ended. As `exit_code_of`, whatever became of the others."""
    bad = client.tasks(view.id, task=asked, state=f"{State.FAILED},{State.CANCELLED}", limit=1)
    is_single = names_one_task(asked) if asked else view.counts.total == 1
    return 0 if not bad else own_exit_code(bad[0]) if pass_through and is_single else 1


def _print(session: Session, view: JobView, asked: str, damages: DamageNotes, *, only_failed: bool) -> JobView:
    """The job at its end, or at that of these tasks. Raises BrokenPipeError once nobody reads any more, also while
    nothing comes."""

    def read() -> Iterator[LogChunk | JobView]:
        yield from session.client.logs(view.id, task=asked or None, ordered=not only_failed, failed=only_failed)
        if not (asked or only_failed):
            yield from session.client.watch(view.id)

    feed, log, is_silent = Feed(), DirectLog(), True
    feed.read("logs", read)
    while True:
        match feed.next(TICK_SECONDS):
            case LogChunk() as chunk:
                damages.note(chunk)
                is_silent = is_silent and not (chunk.data or chunk.damage)
                if session.is_json:
                    print_json_line(chunk)
                else:
                    log.write(chunk)
            case JobView() as view:
                pass
            case StreamBroken(_, error):
                raise error
            case StreamEnded():
                if is_silent and only_failed:
                    say_no_failed_output(view, asked)
                return view
            case None if nobody_reads(1):
                raise BrokenPipeError
