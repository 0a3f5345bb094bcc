"""Table of an array: how does each task find its own row? The table is mounted from a ConfigMap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from jobyard.errors import UserError
from jobyard.executors.environment import task_command
from jobyard.executors.kubernetes.names import kind_name
from jobyard.model.inputs import Inputs
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.placeholders import LINE, Variable, made
from jobyard.model.substitution import own_variables, placeholders_of
from jobyard.model.units import show_mib

DIRECTORY = "/etc/jobyard"
LARGEST_BYTES = 1 << 20  # of all data of a ConfigMap; the API server refuses more


class Tables(NamedTuple):
    """The tables that the tasks of one group read; each is a text with a row per task, or None."""

    commands: str | None = None  # what to run, as a line of shell
    ids: str | None = None  # of an array that is not one simple range
    rows: str | None = None  # YARD_SEQ, where rows of the inputs are left out
    values: Mapping[str, str] = MappingProxyType({})  # of each column, and what is made of it: a row per value

    def files(self, group: GroupSpec) -> dict[str, str]:
        """By file name in DIRECTORY."""
        found = {"commands": self.commands, "ids": self.ids, "rows": self.rows, **self.values}
        return {f"{kind_name(group)}.{name}": text for name, text in found.items() if text is not None}


def tables_of(spec: JobSpec, index: int) -> Tables:
    """The tables of one group. Raises UserError where a command does not fit into a row."""
    group = spec.groups[index]
    command = group.command
    ids = None
    if group.array is not None and len(group.array.pieces) > 1:
        ids = "".join(f"{group.array.id_of(ordinal)}\n" for ordinal in range(group.completions))
    if command.inputs is not None:
        return _of_inputs(command, command.inputs)
    if not has_own_commands(group):
        return Tables(ids=ids)
    return Tables("".join(_rows(spec, index)), ids)


def _of_inputs(command: Command, inputs: Inputs) -> Tables:
    """A product has a table for each of its columns, and not a row for each task."""
    rows = None
    if inputs.chosen:
        rows = "".join(f"{number + 1}\n" for first, last in inputs.chosen for number in range(first, last + 1))
    values = {table_of(each): _made(inputs, each) for each in own_variables(command) if each.column >= 0}
    if placeholders_of(command).is_one:
        values[table_of(Variable(LINE, 0))] = inputs.columns[0].values.text
    for index, source in enumerate(inputs.sources):
        if source.whole is not None:
            values[f"whole.{index}"] = source.whole.text
    return Tables(rows=rows, values=values)


def table_of(variable: Variable) -> str:
    return variable.name.lower()


def _made(inputs: Inputs, variable: Variable) -> str:
    lines = inputs.columns[variable.column].values
    return "".join(f"{made(value, variable.how)}\n" for value in lines) if variable.how else lines.text


def has_own_commands(group: GroupSpec) -> bool:
    """Does each task run something else? Values of inputs come in variables, to a command that all share."""
    return group.command.lines is not None


def files_of(spec: JobSpec) -> dict[str, str]:
    """All tables of the job. Raises UserError where they are more than a ConfigMap holds."""
    files: dict[str, str] = {}
    for index, group in enumerate(spec.groups):
        files |= tables_of(spec, index).files(group)
    size = sum(len(name) + len(text.encode()) for name, text in files.items())
    if size > LARGEST_BYTES:
        raise UserError(
            f"job {spec.name!r}: the lines of its tasks take {show_mib(-(-size // LARGEST_BYTES))}, and a ConfigMap"
            " holds 1 MiB; split the job, or put the lines into the image and find them by $JOB_COMPLETION_INDEX"
        )
    return files


def _rows(spec: JobSpec, index: int) -> Iterator[str]:
    """One row for each task: the command that a machine would run for it."""
    for number in range(spec.offsets[index], spec.offsets[index + 1]):
        yield f"{task_command(spec, number)[-1]}\n"
