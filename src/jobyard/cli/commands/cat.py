"""`yard cat`: what did all tasks write, in their order?"""

from __future__ import annotations

from collections.abc import Iterator

import click

from jobyard.cli.feed import Feed, StreamBroken, StreamEnded
from jobyard.cli.output.json import print_json_line
from jobyard.cli.output.pipe import nobody_reads
from jobyard.cli.output.summary import exit_code_of
from jobyard.cli.output.tasklog import DamageNotes, DirectLog
from jobyard.cli.session import Session, with_session
from jobyard.wire.views import JobView, LogChunk

TICK_SECONDS = 0.5  # so often it is looked whether anybody still reads


@click.command("cat")
@with_session
@click.argument("job", metavar="JOB")
@click.option("--exit-code", "pass_exit_code", is_flag=True, help="Exit with a single task's own code.")
def command(session: Session, job: str, pass_exit_code: bool) -> int:
    """Print what a job's tasks wrote, one task after another: stdout on stdout, stderr on stderr.

    A task's output comes once it and all tasks before it have ended, so that it can be piped to another program. When
    that one closes the pipe, as `head` does, this ends with exit code 0, and the job goes on.

    Exit codes: 0 all succeeded, 1 something failed or output cannot be read any more, 130 interrupted (the job goes
    on).
    """
    damages = DamageNotes()
    try:
        ended = _print(session, session.client.job(job), damages)
    except BrokenPipeError:
        return 0
    return exit_code_of(ended, pass_through=pass_exit_code) or (1 if damages.told else 0)


def _print(session: Session, view: JobView, damages: DamageNotes) -> JobView:
    """The job at its end. Raises BrokenPipeError once nobody reads any more, also while nothing comes."""

    def read() -> Iterator[LogChunk | JobView]:
        yield from session.client.logs(view.id, ordered=True)
        yield from session.client.watch(view.id)

    feed, log = Feed(), DirectLog()
    feed.read("logs", read)
    while True:
        match feed.next(TICK_SECONDS):
            case LogChunk() as chunk:
                damages.note(chunk)
                if session.is_json:
                    print_json_line(chunk)
                else:
                    log.write(chunk)
            case JobView() as view:
                pass
            case StreamBroken(_, error):
                raise error
            case StreamEnded():
                return view
            case None if nobody_reads(1):
                raise BrokenPipeError
