"""Command of one task: what does this task run, as a person would type it? Made from the spec each time, never kept."""

from __future__ import annotations

import shlex
from dataclasses import replace

from jobyard.model.job import Command, JobSpec
from jobyard.model.substitution import PLACEHOLDER, substituted, words_with


def own_command(spec: JobSpec, number: int) -> str:
    """For people and to be pasted into bash; never run. A line that the command reads as YARD_LINE stands before it."""
    place = spec.place_of(number)
    command = spec.groups[place.group].command
    ordinal = number - spec.offsets[place.group]
    if command.lines is not None:
        return command.lines[ordinal]
    if command.entries is None:
        return str(command)
    return _with_line(command, command.entries[ordinal])


def _with_line(command: Command, line: str) -> str:
    if any(PLACEHOLDER in word for word in command.argv):
        return str(replace(command, argv=words_with(command.argv, line)))
    if command.script is None and PLACEHOLDER in command.shell:
        if shlex.quote(line) == line:  # it means the same inside quotes and outside
            return command.shell.replace(PLACEHOLDER, line)
        return f"YARD_LINE={shlex.quote(line)}; {substituted(command.shell).shell}"
    return f"YARD_LINE={shlex.quote(line)} {command}"
