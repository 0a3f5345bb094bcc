"""Command: which job is `yard run -- CMD ARGS`?"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence

from jobyard.errors import UserError
from jobyard.manifests.command_names import name_from_command
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.doubts import PLAIN_WORD, marks_of_shells, told_of
from jobyard.manifests.overrides import Overrides, apply
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.quoting import joined, quoted


def spec_from_command(argv: Sequence[str], overrides: Overrides, context: SubmitContext) -> JobSpec:
    """Several words are run exactly as given; one word with blanks or shell characters is a line of bash."""
    _refuse_late_flags(argv, context)
    command = command_from_words(argv, context)
    spec = JobSpec(
        name=name_from_command(command),
        groups=(GroupSpec(command),),
        workdir=context.workdir,
        submitter=context.submitter("command"),
    )
    return told_of(apply(spec, overrides, context), *marks_of_shells(command.argv))


def _refuse_late_flags(argv: Sequence[str], context: SubmitContext) -> None:
    """`'echo {x}' --header`: there is no program of that name, and bash would have read the line if it stood alone."""
    flag = next((word for word in argv[1:] if re.match("--?[A-Za-z]", word)), "")
    if not flag or not re.search(r"\S\s+\S", argv[0]):
        return
    if not os.path.lexists(os.path.join(context.workdir, argv[0])) and shutil.which(argv[0]) is None:
        raise UserError(
            f"{flag!r:.80} after the command is a word of it; write flags before it: "
            f"yard run {joined(argv[1:])} {quoted(argv[0])}",
            field="command",
        )


def command_from_words(argv: Sequence[str], context: SubmitContext) -> Command:
    if not argv or not argv[0].strip():
        raise UserError("nothing to run; write: yard run -- CMD ARGS", field="command")
    if len(argv) == 1 and not PLAIN_WORD.fullmatch(argv[0]) and not _is_program(argv[0], context):
        return Command(shell=argv[0])
    return Command(argv=tuple(argv))


def _is_program(word: str, context: SubmitContext) -> bool:
    """`./my script.sh` is a program with a blank in its name, not two words of bash."""
    path = os.path.join(context.workdir, word)
    return "/" in word and "\0" not in word and os.path.isfile(path) and os.access(path, os.X_OK)
