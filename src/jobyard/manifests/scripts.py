"""Script: which job is a file that begins with `#!`?

It runs whole, by the interpreter that its first line names. Its text is read once, when it is submitted, and travels
with the job. `#YARD` and `#SBATCH` lines before its first command count; `#YARD` wins, and flags win over both.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence

from jobyard.errors import UserError
from jobyard.manifests.batch import directives_of
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.files import lines_of, name_from_file
from jobyard.manifests.overrides import Overrides, apply, merge
from jobyard.manifests.sbatch import read_directives
from jobyard.model.job import Command, GroupSpec, JobSpec, Script
from jobyard.model.limits import SCRIPT_BYTES_MOST
from jobyard.quoting import joined, quoted, quoted_file

_DIRECTIVE = re.compile(r"#(?:SBATCH|YARD)\s")
_SRUN = re.compile(r"\s*srun\s")


def spec_from_script(
    text: str, file: str, arguments: Sequence[str], overrides: Overrides, context: SubmitContext
) -> JobSpec:
    """One task that runs the script with these arguments. Raises UserError."""
    script = Script(os.path.basename(file), text)
    if not script.interpreter:
        raise UserError(f"{file}: its first line names no interpreter; write for example #!/bin/bash")
    if len(text.encode()) > SCRIPT_BYTES_MOST:
        raise UserError(
            f"{quoted(file)}: a script of more than {SCRIPT_BYTES_MOST >> 10} KiB cannot travel with its job; "
            f"leave it where tasks find it, and write: yard run -- {joined(script.interpreter)} {quoted_file(file)}"
        )
    head = script.head
    above = merge(directives_of(head, file, context), overrides)
    meaning = read_directives(head, file, above)
    spec = JobSpec(
        name=name_from_file(file),
        groups=(GroupSpec(Command(argv=tuple(arguments), script=script)),),
        workdir=context.workdir,
        submitter=context.submitter("script", (*meaning.notes, *_doubts(text, head, file))),
    )
    try:
        spec = apply(spec, merge(Overrides(**meaning.said), above), context)
    except UserError as refusal:
        raise meaning.as_written(refusal) from None
    if meaning.kept is not None:
        spec = spec.with_shell({name: context.environ[name] for name in meaning.kept if name in context.environ})
    return spec


def _doubts(text: str, head: str, file: str) -> Iterator[str]:
    before = len(lines_of(head))
    rest = list(enumerate(lines_of(text)[before:], start=before + 1))
    if late := [number for number, line in rest if _DIRECTIVE.match(line)]:
        yield (
            f"{file}: line {late[0]}: a directive counts only before the first command, which is in line {before + 1}; "
            "move it up if it was meant to count"
        )
    started = next((number for number, line in rest if _SRUN.match(line)), None)
    if started and shutil.which("srun") is None:
        yield f"{file}: line {started}: there is no srun here; without the word the command runs in the task itself"
