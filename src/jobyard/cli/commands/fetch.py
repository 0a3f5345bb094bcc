"""`yard fetch`: bring the results of a job here."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, cast

import click

from jobyard.cli.output.json import print_json
from jobyard.cli.output.summary import title
from jobyard.cli.output.text import say, warn
from jobyard.cli.session import Session, with_session
from jobyard.errors import Unwritable, YardError
from jobyard.model.task_ranges import job_and_tasks
from jobyard.staging.members import DAMAGE, members, new_archive, open_archive, pass_on, refusal
from jobyard.staging.results import Unpacked, unpack_results
from jobyard.wire.views import JobView

RESULTS = "job_results"


@click.command("fetch")
@with_session
@click.argument("selector", metavar="JOB[/TASKS]")
@click.option(
    "--task", "tasks", multiple=True, metavar="LABELS", help="Only these tasks, as in 3,7-9; may be repeated."
)
@click.option("--to", metavar="DIR", default=RESULTS, show_default=True, help="Where to; made if missing.")
def command(session: Session, selector: str, tasks: tuple[str, ...], to: str) -> int:
    """Bring the results and the output of a job's tasks here, to DIR/ID, where ID is the id of the job. JOB/TASKS, as
    in 17/3 or 17/3-7: only of those.

    Of tasks on other machines: what they wrote, which is collected by itself where the job was submitted; this is for
    another place, or a second time. Of tasks on this machine: their output, and what is in YARD_OUTPUT_DIR. What is
    there already is never overwritten.
    """
    job, asked = job_and_tasks(selector, tasks)
    view = session.client.job(job)
    directory = Path(os.path.abspath(os.path.expanduser(to)))
    unpacked = fetch(session.client.results(view.id, task=asked or None), directory, lambda label: stem_of(view, label))
    if session.is_json:
        print_json(
            {
                "job": view.id,
                "directory": str(directory),
                "files": unpacked.files,
                "kept_apart": unpacked.kept_apart,
                "left_out": unpacked.left_out,
            }
        )
        return 0
    for name in unpacked.kept_apart:
        warn(f"another file of that name was there; written as {directory / name}")
    for sentence in unpacked.left_out:
        warn(f"left out: {sentence}")
    say(f"{title(view)}: {unpacked.files} file{'' if unpacked.files == 1 else 's'} in {directory}")
    return 0


def stem_of(view: JobView, label: str) -> str:
    """Where a task's results are below `job_results`: the same layout as in automatic collection."""
    if view.source == "ml-scheduler":
        return view.name if label == "0" else f"{view.name}.{label}"  # lines count from 1
    return view.id if view.counts.total == 1 else f"{view.id}/{label}"


def fetch(pieces: Iterator[bytes], directory: Path, stem: Callable[[str], str]) -> Unpacked:
    """Unpack the server's tar, whose names begin with tasks' labels, below `directory`. Raises YardError."""
    with tempfile.TemporaryFile() as received, tempfile.NamedTemporaryFile(suffix=".tar") as renamed:
        try:
            received.writelines(pieces)
            received.seek(0)
            left_out = _rename(cast(IO[bytes], received), cast(IO[bytes], renamed), stem)
            renamed.flush()
        except DAMAGE as error:
            raise YardError(f"the results did not arrive whole ({error}); try again") from error
        except OSError as error:
            raise Unwritable(
                f"no room for the results in {tempfile.gettempdir()}: {error.strerror}; set TMPDIR"
            ) from None
        unpacked = unpack_results(renamed.name, directory, suffix=".fetched")
        return replace(unpacked, left_out=(*left_out, *unpacked.left_out))


def _rename(source: IO[bytes], target: IO[bytes], stem: Callable[[str], str]) -> list[str]:
    """What was left out, and why."""
    left_out = []
    with open_archive(source) as tar, new_archive(target) as renamed:
        for member in members(tar):
            if why := refusal(member, root=1):
                left_out.append(f"{member.name!r}: {why}")
            else:
                pass_on(tar, member, renamed, lambda name: _renamed(name, stem))
    return left_out


def _renamed(name: str, stem: Callable[[str], str]) -> str:
    first, slash, rest = name.removeprefix("./").partition("/")
    label, dot, stream = first.rpartition(".")
    if not slash and dot and stream in ("out", "err", "damaged"):
        return f"{stem(label)}.{stream}"
    return f"{stem(first)}{slash}{rest}"
