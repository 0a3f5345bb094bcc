"""Values in a pod: which lines of sh find the row of inputs that its task has? Each column is a table in a file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from jobyard.executors.kubernetes.tables import table_of
from jobyard.model.inputs import Inputs
from jobyard.model.job import Command
from jobyard.model.placeholders import LINE, SEQ, Variable
from jobyard.model.substitution import own_variables, placeholders_of


def value_lines(command: Command, inputs: Inputs, seq: str, prefix: str) -> Iterator[str]:
    """`seq` is a word of sh: the number of the row, from 1. `prefix` begins the names of the files with the tables."""
    yield f"export {SEQ}={seq}"
    known = placeholders_of(command)
    variables = [each for each in own_variables(command) if each.column >= 0]
    if known.is_one:
        variables.append(Variable(LINE, 0))
    sources = [index for index, source in enumerate(inputs.sources) for _ in source.columns]
    for variable in dict.fromkeys(variables):
        source, values = sources[variable.column], inputs.columns[variable.column].values
        line = f'export {variable.name}="{_line(inputs, source, prefix + table_of(variable))}"'
        if len(values) < len(inputs.sources[source]):
            line = f"[ $(({_index(inputs, source)})) -ge {len(values)} ] || {line}"
        yield line
    if not known.is_one:
        yield f'export {LINE}="{"".join(_parts(inputs, prefix))[1:]}"'


def _parts(inputs: Inputs, prefix: str) -> Iterator[str]:
    """Of the whole row, each with a blank before it."""
    number = 0
    for index, source in enumerate(inputs.sources):
        if source.whole is not None:
            yield f" {_line(inputs, index, f'{prefix}whole.{index}')}"
        for column in source.columns:
            number += 1
            name = f"YARD_{number}"
            if source.whole is None:
                yield f" ${{{name}}}" if len(column.values) == len(source) else f"${{{name}+ ${{{name}}}}}"


def _index(inputs: Inputs, source: int) -> str:
    """Arithmetic of sh: which row of this source is it? From 0."""
    return f"({SEQ} - 1) / {inputs.strides[source]} % {len(inputs.sources[source])}"


def _line(inputs: Inputs, source: int, file: str) -> str:
    return f"$(sed -n $(({_index(inputs, source)} + 1))p {shlex.quote(file)})"
