"""Command: which job is `yard run -- CMD ARGS`?"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.overrides import Overrides, apply
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.selectors import other_meaning

_PLAIN = re.compile(r"[\w@%+=:,./{}-]+")  # bash would take such a word as it stands
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def spec_from_command(argv: Sequence[str], overrides: Overrides, context: SubmitContext) -> JobSpec:
    """Several words are run exactly as given; one word with blanks or shell characters is a line of bash."""
    command = command_from_words(argv, context)
    spec = JobSpec(
        name=name_from_command(command),
        groups=(GroupSpec(command),),
        workdir=context.workdir,
        submitter=context.submitter("command"),
    )
    return apply(spec, overrides, context)


def command_from_words(argv: Sequence[str], context: SubmitContext) -> Command:
    if not argv or not argv[0].strip():
        raise UserError("command: nothing to run; write: yard run -- CMD ARGS")
    if len(argv) == 1 and not _PLAIN.fullmatch(argv[0]) and not _is_program(argv[0], context):
        return Command(shell=argv[0])
    return Command(argv=tuple(argv))


def name_from_command(command: Command) -> str:
    """The program's file name, without a path or variables set before it."""
    words = command.argv or command.shell.split()
    program = next((word for word in words if not _ASSIGNMENT.match(word)), "")
    match = re.search(r"[\w.+-]+", os.path.basename(program))
    name = match[0][:200] if match else "command"
    return f"{name[:190]}-command" if other_meaning(name) else name


def _is_program(word: str, context: SubmitContext) -> bool:
    """`./my script.sh` is a program with a blank in its name, not two words of bash."""
    path = os.path.join(context.workdir, word)
    return "/" in word and "\0" not in word and os.path.isfile(path) and os.access(path, os.X_OK)
