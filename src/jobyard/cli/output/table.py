"""Tables: how do people read a list? Aligned columns, cut to the terminal's width. No library: it must be quick."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

import click

from jobyard.cli.output.harmless import harmless
from jobyard.cli.output.text import Painted, say, shortened, shown, width

GAP = "  "
LEAST_COLUMNS = 10  # of a cell that is cut
LAST_COLUMNS = 24  # of the last column, before another one is left out for it


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    spare: Sequence[str] = (),
    last_in_pipe: int | None = None,
) -> None:
    """On stdout. Cells may be Painted; the last column gets the width that is left, and has no colour.

    A terminal that is too narrow does without the `spare` columns, the first one first. A pipe gets all, and whole,
    apart from the last one, where `last_in_pipe` says how much of it a line shall have.
    """
    plain = [[harmless(cell) for cell in row] for row in rows]
    widths = [max(width(cell) for cell in column) for column in zip(headers, *plain, strict=True)]
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if columns is not None and not _fits(widths, columns, last=max(LAST_COLUMNS, columns // 3)):
        widths[:-1] = [min(each, max(LEAST_COLUMNS, columns // 4)) for each in widths[:-1]]
    shown_columns = columns_that_fit(headers, widths, columns, spare)
    widths = [widths[index] for index in shown_columns]
    if columns is not None:
        widths[-1] = max(LEAST_COLUMNS, columns - _taken(widths[:-1]))
    elif last_in_pipe is not None:
        widths[-1] = min(widths[-1], last_in_pipe)
    click.echo(click.style(_line([headers[index] for index in shown_columns], widths), bold=True))
    for row in rows:
        click.echo(_line([row[index] for index in shown_columns], widths))


def say_more(rows: int) -> None:
    """That a table is not all there is."""
    if rows > 0:
        say(f"... and {rows} more (use -n)")


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """`name  value` on each line; what has no value is left out. A terminal has long values on several lines."""
    label_width = max((len(name) for name, value in fields if value), default=0)
    room = shutil.get_terminal_size().columns - label_width - len(GAP) if sys.stdout.isatty() else None
    for name, value in fields:
        if value:
            first, *others = _folded(value, room)
            click.echo(f"{click.style(harmless(name).ljust(label_width), bold=True)}{GAP}{shown(first)}")
            for line in others:
                click.echo(f"{' ' * label_width}{GAP}{line}")


def _folded(value: str, room: int | None) -> list[str]:
    """Between words only: a long path stays one that can be copied."""
    if room is None or width(harmless(value)) <= room:
        return [value]
    words = harmless(value)
    return textwrap.wrap(words, max(LEAST_COLUMNS, room), break_long_words=False, break_on_hyphens=False) or [words]


def columns_that_fit(
    headers: Sequence[str], widths: Sequence[int], columns: int | None, spare: Sequence[str]
) -> list[int]:
    """Which columns are shown, by their index. `columns`: of the terminal; None: it is none."""
    left = list(range(len(headers)))
    for header in (each for each in spare if each in headers):
        if columns is None or _fits([widths[index] for index in left], columns):
            break
        left.remove(headers.index(header))
    return left


def _fits(widths: Sequence[int], columns: int, *, last: int = LAST_COLUMNS) -> bool:
    """With so many columns for the last one, if it needs them."""
    return _taken(widths[:-1]) + min(widths[-1], last) <= columns


def _taken(widths: Sequence[int]) -> int:
    """By these columns, with the gap after each."""
    return sum(widths) + len(GAP) * len(widths)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [_cell(cell, columns) for cell, columns in zip(row[:-1], widths[:-1], strict=True)]
    return GAP.join([*cells, shortened(harmless(row[-1]), widths[-1])]).rstrip()


def _cell(cell: str, columns: int) -> str:
    text = shortened(harmless(cell), columns)
    return shown(Painted(text, cell.colour) if isinstance(cell, Painted) else text) + " " * (columns - width(text))
