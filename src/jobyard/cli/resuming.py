"""Resuming: which tasks succeeded before, by a job log? Told by their commands: text, and how often it stands there."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Sequence

import click

from jobyard.cli.output.harmless import harmless
from jobyard.cli.output.joblog import COLUMNS, HEADER
from jobyard.errors import UserError
from jobyard.manifests.skipping import only
from jobyard.model.job import JobSpec
from jobyard.model.own_command import own_command

resume_flag = click.option(
    "--resume", metavar="FILE", help="Leave out what succeeded before, by FILE that --joblog wrote; both may be one."
)


class Resuming:
    """One `--resume`. `seqs` are the numbers, from 1, that the tasks which are left have in the whole list.

    Only of a list of commands: values keep their own number in the job itself.
    """

    def __init__(self, file: str, *, may_miss: bool = False) -> None:
        """`may_miss`: a file that is not there tells of no task."""
        self._file = file
        self._may_miss = may_miss
        self.seqs: Sequence[int] = ()

    def without_done(self, spec: JobSpec) -> JobSpec:
        """The job without the tasks that a job log, ours or GNU parallel's, tells of as succeeded. Raises NothingLeft.

        Of tasks with the same command as many are done as succeeded.
        """
        done, left = _succeeded(self._file, may_miss=self._may_miss), array("L")

        def is_left(number: int) -> bool:
            command = harmless(own_command(spec, number))
            done[command] -= 1
            if done[command] < 0:
                left.append(number + 1)
            return done[command] < 0

        found = only(spec, is_left, "--resume", f"succeeded before, by {self._file}")
        self.seqs = left if spec.groups[0].command.lines is not None else ()
        return found


def _succeeded(file: str, *, may_miss: bool) -> Counter[str]:
    try:
        with open(os.path.expanduser(file), encoding="utf-8") as lines:
            header = next(lines, HEADER).rstrip("\n")
            if header != HEADER:
                raise UserError(f"--resume: {file!r} is no job log; name one that --joblog wrote")
            rows = (line.rstrip("\n").split("\t", len(COLUMNS) - 1) for line in lines)
            return Counter(row[-1] for row in rows if len(row) == len(COLUMNS) and row[-3:-1] == ["0", "0"])
    except FileNotFoundError:
        if may_miss:
            return Counter()
        raise UserError(f"--resume: {file!r} does not exist; name a file that --joblog wrote") from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"--resume: {file!r} cannot be read: {why}") from None


def is_same_file(one: str | None, other: str | None) -> bool:
    """Of two names as they were typed."""
    if one is None or other is None:
        return False
    return os.path.realpath(os.path.expanduser(one)) == os.path.realpath(os.path.expanduser(other))
