"""Spreading: how does the job of one command become one of many tasks, by array ids or by rows of values?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jobyard.errors import UserError
from jobyard.manifests.arrays import parse_array
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.declarations import put
from jobyard.manifests.doubts import told_of, unnamed
from jobyard.manifests.inputs import CUTTING, GIVING, read_inputs
from jobyard.model import substitution
from jobyard.model.inputs import Inputs
from jobyard.model.job import Command, JobSpec
from jobyard.model.placeholders import Placeholders

SPREADING = ("array", *GIVING)
FIELDS = (*SPREADING, *CUTTING)
_WORDS_SHOWN = ":::"


def spread(
    spec: JobSpec, said: Mapping[str, Any], context: SubmitContext, shown: Callable[[str], str] = str
) -> JobSpec:
    """A task for each id or row that is said, by the names of fields. `shown` says how a person wrote them."""
    given = [name for name in SPREADING if said.get(name)]
    if given[:1] == ["array"] and len(given) > 1:
        both = f"{shown('array')} and {_called(given[1], shown)}"
        raise UserError(f"{both} cannot be used together; give the one whose tasks you want")
    found = read_inputs(said, context, lambda name: _called(name, shown))
    if not given:
        return spec
    asked = _called(given[0], shown)
    group = spec.groups[0]
    if group.command.lines is not None:
        raise UserError(
            f"a batch file has one task per line already; leave {asked} out, or run: yard run -- CMD", field=asked
        )
    if group.name:
        raise UserError("the job has groups, whose count and completions say how many tasks; leave it out", field=asked)
    if found is None:
        ids, limit = parse_array(said["array"], asked)
        command = replace(group.command, inputs=None)
        group = replace(group, array=ids, completions=len(ids), command=command)
        return put(replace(spec, groups=(group,)), "policy.limit", limit or spec.policy.limit)
    inputs = found.inputs
    is_appended = given == ["inputs"] and said.get("values_per_task") != 0
    command = _with_rows(group.command, inputs, is_appended=is_appended)
    substitution.check(command)
    spec = replace(spec, groups=(replace(group, array=None, completions=len(inputs), command=command),))
    spec = told_of(spec, *found.notes, *unnamed(command, Placeholders.of(inputs)))
    return spec if said.get("values_per_task") == 0 else _told_without_placeholder(spec, command, inputs, asked)


def _called(name: str, shown: Callable[[str], str]) -> str:
    return _WORDS_SHOWN if name == "inputs" else shown(name)


def _with_rows(command: Command, inputs: Inputs, *, is_appended: bool) -> Command:
    """As parallel does, values after ::: stand at the end of a command that has no placeholder for them."""
    rows = replace(command, inputs=inputs)
    known = Placeholders.of(inputs)
    is_used = any(map(known.stands_in, command.argv)) if command.script is not None else uses_values(rows)
    if not is_appended or is_used:
        return rows
    if command.shell:
        return replace(rows, shell=f"{command.shell} {{}}")
    return replace(rows, argv=(*command.argv, "{}"))


def uses_values(command: Command) -> bool:
    """Has it a placeholder, or does it name one of the variables?"""
    assert command.inputs is not None
    known = Placeholders.of(command.inputs)
    words = (command.shell, *command.argv)
    names = [variable.name for variable in known.base()]
    text = command.script.text if command.script is not None else ""
    return any(map(known.stands_in, words)) or any(name in word for name in names for word in (*words, text))


def _told_without_placeholder(spec: JobSpec, command: Command, inputs: Inputs, asked: str) -> JobSpec:
    if uses_values(command):
        return spec
    names = [f"YARD_PARAM_{column.name}" for column in inputs.columns if column.name] or ["YARD_LINE"]
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return told_of(spec, f"{asked}: the command has no placeholder such as {{}}; each task has its values in {shown}")
