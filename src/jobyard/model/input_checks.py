"""Input checks (validation): can these be rows of tasks? Asked of what a person writes and of each request."""

from __future__ import annotations

from itertools import pairwise

from jobyard.errors import UserError
from jobyard.model.inputs import Inputs, Source
from jobyard.model.limits import COLUMNS_MOST, ROWS_MOST, SOURCES_MOST, WORD_BYTES_MOST
from jobyard.model.lines import Lines
from jobyard.model.placeholders import NAME

_SIZES_SHOWN = 8


def check_inputs(inputs: Inputs, field: str = "inputs") -> None:
    """Raises UserError with one sentence."""
    for number, source in enumerate(inputs.sources, start=1):
        _check_source(source, f"source {number} of them" if len(inputs.sources) > 1 else "it", field)
    if len(inputs.sources) > SOURCES_MOST or inputs.product > ROWS_MOST:
        size = " x ".join(str(len(source)) for source in inputs.sources[:_SIZES_SHOWN])
        more = " x ..." if len(inputs.sources) > _SIZES_SHOWN else ""
        raise UserError(
            f"{size}{more} are {inputs.product:,} tasks; at most {ROWS_MOST:,} are possible, split the job", field=field
        )
    _check_names([name for name in inputs.names if name], field)
    for before, (first, last) in pairwise([(-1, -1), *inputs.chosen]):
        if not before[1] < first <= last < inputs.product:
            raise UserError(
                f"rows {first} to {last} of {inputs.product} are chosen; name each once, in order", field=field
            )


def check_name(name: str, field: str, what: str = "column") -> None:
    """It is the name of a variable too. Raises UserError."""
    if not NAME.fullmatch(name):
        raise UserError(f"{name!r:.80} cannot name a {what}; write letters, digits and _, a letter first", field=field)


def _check_names(names: list[str], field: str) -> None:
    for name in names:
        check_name(name, field)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"two columns are called {twice!r}; give each its own name", field=field)


def _check_source(source: Source, named: str, field: str) -> None:
    rows = len(source)
    if not rows:
        raise UserError(f"{named} has no values; give at least one", field=field)
    if len(source.columns) > COLUMNS_MOST:
        raise UserError(f"{named} has {len(source.columns)} columns; at most {COLUMNS_MOST} are possible", field=field)
    lengths = [len(column.values) for column in source.columns]
    if lengths != sorted(lengths, reverse=True) or lengths[-1] < rows - 1:
        raise UserError(
            f"{named} has columns of {min(lengths)} to {max(lengths)} values; give each as many", field=field
        )
    if source.whole is not None and len(source.whole) != rows:
        raise UserError(f"{named} has {len(source.whole)} lines for {rows} rows; give one for each", field=field)
    for lines in (*(column.values for column in source.columns), *([source.whole] if source.whole is not None else [])):
        _check_lines(lines, named, field)


def _check_lines(lines: Lines, named: str, field: str) -> None:
    if lines.text and not lines.text.endswith(lines.end):
        raise UserError(f"{named} has a last value without a newline at its end", field=field)
    if found := lines.longer_than(WORD_BYTES_MOST):
        raise UserError(
            f"{named} has a value of {found} characters; at most {WORD_BYTES_MOST} are possible", field=field
        )
