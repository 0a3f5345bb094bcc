"""Batch file: which jobs does it become, and how are its lines named?"""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobyard.compat.ml_scheduler.flags import RANDOM_NAME, BatchFlags, Copies, parse_remote
from jobyard.errors import UserError
from jobyard.manifests.arrays import parse_array
from jobyard.manifests.batch import physical_lines
from jobyard.manifests.notation import parse_copied
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.lines import Lines
from jobyard.model.policy import RunPolicy
from jobyard.model.resources import Resources
from jobyard.model.staging import StagingSpec
from jobyard.model.submitter import Submitter

RESULTS = "job_results"
SOURCE = "ml-scheduler"
# Never part of results: to ask for this path alone means no results, where an empty list would mean all of them.
NOTHING = (RESULTS,)


@dataclass(frozen=True)
class Line:
    """One line of a batch, or the command of `execute_remote`. `name` is the name of its results."""

    number: int
    name: str
    command: str
    text: str  # as it stands in the file
    copies: Copies
    has_own_name: bool = False


@dataclass(frozen=True)
class Run:
    """One job of the yard and the lines that its tasks are, in the order of the tasks."""

    spec: JobSpec
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class BatchContext:
    """Where results go, and the user: `here` is absolute, `empty` is an empty directory."""

    here: str
    empty: str
    user: str = ""


def read_lines(flags: BatchFlags, text: str) -> list[Line]:
    """The commands, numbered as in the file: blank lines and comments count, but are not run. Raises UserError."""
    base = flags.filename.replace("/", "_")
    lines = [_line(flags, base, number, text.strip()) for number, text in physical_lines(text)]
    named: dict[str, int] = {}
    for line in lines:
        if (first := named.setdefault(line.name, line.number)) != line.number:
            raise UserError(
                f"{flags.filename}: line {line.number}: its results are called {line.name!r}, as those of line {first}"
            )
    return lines


def _line(flags: BatchFlags, base: str, number: int, text: str) -> Line:
    name = f"{base}.{number}"
    if not flags.is_kabuki:
        return Line(number, name, text, text, flags.copies)
    try:
        # The first word is execute_remote itself; whatever machine it names, the batch chooses one.
        own = parse_remote(shlex.split(text)[1:], needs_machine=False)
    except (UserError, ValueError) as error:
        raise UserError(f"{flags.filename}: line {number}: {error}") from None
    forward = _expanded(own.copies.forward) if "copy_forward" in own.given else flags.copies.forward
    backwards = own.copies.backwards if "copy_backwards" in own.given else flags.copies.backwards
    has_own_name = own.job_name != RANDOM_NAME
    copies = Copies(forward, backwards)
    return Line(number, own.job_name if has_own_name else name, own.command, text, copies, has_own_name)


def _expanded(paths: Iterable[str]) -> tuple[str, ...]:
    """No shell has seen these: `*.py` is for us to expand."""
    return tuple(found for path in paths for found in sorted(glob.glob(path)) or [path])


def has_results(here: str, line: Line) -> bool:
    """The skip rule: only the directory counts, not `.out` and `.err`."""
    return os.path.isdir(os.path.join(here, RESULTS, line.name))


def runs_of(base: str, lines: Sequence[Line], resources: Resources, on: str, context: BatchContext) -> list[Run]:
    """One job for all lines that send and bring the same; usually one in all. A line with a name of its own is one."""
    groups: dict[tuple[str, Copies], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.name if line.has_own_name else "", line.copies), []).append(line)
    return [
        Run(_batch_spec(own or base, found, resources, on, context, is_array=not own), tuple(found))
        for (own, _), found in groups.items()
    ]


def _batch_spec(
    name: str, lines: Sequence[Line], resources: Resources, on: str, context: BatchContext, *, is_array: bool
) -> JobSpec:
    """Each task has its line's number for a label."""
    group = GroupSpec(
        Command(lines=Lines.of([line.command for line in lines])),
        completions=len(lines),
        resources=resources,
        array=parse_array(",".join(str(line.number) for line in lines))[0] if is_array else None,
    )
    return _spec(name, group, lines[0].copies, on, context)


def remote_run(line: Line, resources: Resources, on: str, context: BatchContext) -> Run:
    return Run(
        _spec(line.name, GroupSpec(Command(shell=line.command), resources=resources), line.copies, on, context), (line,)
    )


def _spec(name: str, group: GroupSpec, copies: Copies, on: str, context: BatchContext) -> JobSpec:
    sends = [parse_copied(path, context.here, "--copy-forward") for path in copies.forward]
    brings = [parse_copied(path, context.here, "--copy-backwards", must_exist=False) for path in copies.backwards]
    return JobSpec(
        name=name,
        groups=(group,),
        on=on,
        workdir=context.here if sends else context.empty,
        policy=RunPolicy(overcommit=True),
        submitter=Submitter(context.user, source=SOURCE),
        staging=StagingSpec(
            copy_forward=() if sends == ["."] else tuple(sends),  # a named path is sent even if an ignore file names it
            copy_back=tuple(brings) or NOTHING,
            results_dir=os.path.join(context.here, RESULTS),
        ),
    )


def set_aside(here: str, line: Line) -> None:
    """Output of an earlier run whose results were deleted keeps its content under another name: `NAME.out.1`."""
    for stream in ("out", "err"):
        old = Path(here, RESULTS, f"{line.name}.{stream}")
        number = 1
        while old.exists():
            kept = old.with_name(f"{old.name}.{number}")
            if kept.exists():
                number += 1
            else:
                old.rename(kept)
