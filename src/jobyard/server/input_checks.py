"""Input checks (validation): do the values of a job fit its tasks, and each other?"""

from __future__ import annotations

from jobyard.errors import UserError
from jobyard.model.inputs import Inputs, Source
from jobyard.model.job import Command
from jobyard.model.limits import ROWS_MOST, WORD_BYTES_MOST
from jobyard.model.lines import Lines
from jobyard.model.placeholders import NAME


def check_inputs(command: Command, inputs: Inputs, tasks: int, named: str) -> None:
    """Raises UserError with one sentence."""
    if command.lines is not None or command.entries is not None:
        raise UserError(f"{named}: inputs beside lines or entries; give one of them")
    for number, source in enumerate(inputs.sources, start=1):
        _check_source(source, f"{named}: source {number} of its inputs")
    if inputs.product > ROWS_MOST:
        raise UserError(
            f"{named}: its inputs make {inputs.product:,} tasks; at most {ROWS_MOST:,} are possible, split the job"
        )
    names = [column.name for column in inputs.columns if column.name]
    for name in names:
        if not NAME.fullmatch(name):
            raise UserError(f"{named}: {name!r:.80} cannot name a column; write letters, digits and _, a letter first")
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{named}: several columns of its inputs are called {twice[0]!r}; give each its own name")
    last = -1
    for first, end in inputs.chosen:
        if not last < first <= end < inputs.product:
            raise UserError(f"{named}: rows {first} to {end} of {inputs.product} are chosen; name each once, in order")
        last = end
    if len(inputs) != tasks:
        raise UserError(f"{named}: {len(inputs)} rows of inputs for {tasks} tasks")


def _check_source(source: Source, named: str) -> None:
    rows = len(source)
    if not rows:
        raise UserError(f"{named} has no values; give it one at least")
    lengths = [len(column.values) for column in source.columns]
    if lengths != sorted(lengths, reverse=True) or lengths[-1] < rows - 1:
        raise UserError(f"{named} has columns of {min(lengths)} to {max(lengths)} values; give each as many")
    if source.whole is not None and len(source.whole) != rows:
        raise UserError(f"{named} has {len(source.whole)} lines for {rows} rows; give one for each")
    for lines in (*(column.values for column in source.columns), *([source.whole] if source.whole is not None else [])):
        _check_lines(lines, named)


def _check_lines(lines: Lines, named: str) -> None:
    if not lines.text.endswith("\n") and lines.text:
        raise UserError(f"{named}: the last value has no newline at its end")
    if found := lines.longer_than(WORD_BYTES_MOST):
        raise UserError(f"{named}: a value has {found} characters; at most {WORD_BYTES_MOST} are possible")
