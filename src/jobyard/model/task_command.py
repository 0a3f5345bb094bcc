"""Task command: what does one task of a job run, as a person would write it?"""

from __future__ import annotations

import shlex
from dataclasses import replace

from jobyard.model.job import JobSpec
from jobyard.model.substitution import PLACEHOLDER, words_with


def task_command_text(spec: JobSpec, number: int) -> str:
    """Its own line, or the command with its line in place of `{}`. For reading: it is not what is given to a shell."""
    group = spec.place_of(number).group
    command, ordinal = spec.groups[group].command, number - spec.offsets[group]
    if command.lines is not None:
        return command.lines[ordinal]
    if command.entries is None:
        return str(command)
    line = command.entries[ordinal]
    if command.shell:
        return command.shell.replace(PLACEHOLDER, shlex.quote(line))
    return str(replace(command, argv=words_with(command.argv, line)))
