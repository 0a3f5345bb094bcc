"""Command of one task: what does this task run, as a person would type it? Made from the spec each time, never kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jobyard.model.inputs import Row
from jobyard.model.job import Command, JobSpec
from jobyard.model.placeholders import LINE, PARAM, SLOT
from jobyard.model.substitution import (
    SLOT_HOLE,
    placeholders_of,
    row_of,
    substituted,
    variables_of,
    words_with,
)
from jobyard.quoting import quoted


def own_command(spec: JobSpec, number: int) -> str:
    """For people and to be pasted into bash; never run. Values that the command reads in variables stand before it."""
    place = spec.place_of(number)
    command = spec.groups[place.group].command
    ordinal = number - spec.offsets[place.group]
    if command.lines is not None:
        return command.lines[ordinal]
    row = row_of(command, ordinal)
    return str(command) if row is None else _with_row(command, row)


def own_values(spec: JobSpec, number: int) -> dict[str, str]:
    """Of the inputs that have names: those of this task."""
    place = spec.place_of(number)
    inputs = spec.groups[place.group].command.inputs
    return {} if inputs is None else inputs.named(inputs.number_of(number - spec.offsets[place.group]))


def seq_of(spec: JobSpec, number: int) -> int:
    """Parallel's Seq, from 1: the same as `{#}`, so a task keeps it when others are left out."""
    inputs = spec.groups[0].command.inputs if len(spec.groups) == 1 else None
    return (number if inputs is None else inputs.number_of(number)) + 1


def _with_row(command: Command, row: Row) -> str:
    known = placeholders_of(command)
    if any(map(known.stands_in, command.argv)):
        words = (word.replace(SLOT_HOLE, "{%}") for word in words_with(command, row))
        return str(replace(command, argv=tuple(words)))
    values = variables_of(command, row)
    if command.script is None and known.stands_in(command.shell):
        done = substituted(command.shell, known)
        used = {each.name: values[each.name] for each in done.variables if each.name in values}
        if all(quoted(value) == value for value in used.values()):  # they mean the same inside quotes and outside
            return done.shown(used)
        return f"{_assigned(used, '; ')}{done.shell}"
    named = {name: value for name, value in values.items() if name.startswith(PARAM)}
    return f"{_assigned(named or {LINE: values[LINE]}, ' ')}{command}"


def _assigned(values: Mapping[str, str], end: str) -> str:
    return "".join(f"{name}={quoted(value)}{end}" for name, value in values.items() if name != SLOT)
