"""Script: which job is a file that begins with `#!`?

It runs whole, by the interpreter that its first line names. Its text is read once, when it is submitted, and travels
with the job. `#YARD` lines count as in a batch file; `#SBATCH` lines are ignored, and a note says which there are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from jobyard.errors import UserError
from jobyard.manifests.batch import directives_of
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.files import lines_of, name_from_file
from jobyard.manifests.overrides import Overrides, apply, merge
from jobyard.model.job import Command, GroupSpec, JobSpec, Script
from jobyard.model.limits import SCRIPT_BYTES_MOST

_SBATCH = re.compile(r"#SBATCH\s+(.*)")


def spec_from_script(
    text: str, file: str, arguments: Sequence[str], overrides: Overrides, context: SubmitContext
) -> JobSpec:
    """One task that runs the script with these arguments. Raises UserError."""
    script = Script(os.path.basename(file), text)
    if not script.interpreter:
        raise UserError(f"{file}: its first line names no interpreter; write for example #!/bin/bash")
    if len(text.encode()) > SCRIPT_BYTES_MOST:
        raise UserError(
            f"{file}: a script of more than {SCRIPT_BYTES_MOST >> 10} KiB cannot travel with its job; "
            f"leave it where tasks find it, and write: yard run -- {script.interpreter[0]} {file}"
        )
    spec = JobSpec(
        name=name_from_file(file),
        groups=(GroupSpec(Command(argv=tuple(arguments), script=script)),),
        workdir=context.workdir,
        submitter=context.submitter("script", _notes(text, file)),
    )
    return apply(spec, merge(directives_of(text, file, context), overrides), context)


def _notes(text: str, file: str) -> tuple[str, ...]:
    asked = [match[1].strip() for line in lines_of(text) if (match := _SBATCH.match(line))]
    if not asked:
        return ()
    return (
        f"{file}: its #SBATCH lines are not honoured ({', '.join(asked)}); "
        "say what they ask for with flags or with lines as #YARD --gpus 1 --mem 4G",
    )
