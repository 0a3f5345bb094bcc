"""Tables: how do people read a list? Aligned columns, cut to the terminal's width. No library: it must be quick."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

import click

from jobyard.cli.output.harmless import harmless
from jobyard.cli.output.text import say, shortened, shown, width

GAP = "  "
LEAST_COLUMNS = 10  # of a cell that is cut


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """On stdout. Cells may be Painted; the last column is the one that is cut, and has no colour."""
    plain = [[harmless(cell) for cell in row] for row in rows]
    widths = [max(width(cell) for cell in column) for column in zip(headers, *plain, strict=True)]
    last_width = _room_for_last(widths)
    click.echo(click.style(_line(headers, headers, widths, last_width), bold=True))
    for row, plain_row in zip(rows, plain, strict=True):
        click.echo(_line(row, plain_row, widths, last_width))


def say_more(rows: int) -> None:
    """That a table is not all there is."""
    if rows > 0:
        say(f"... and {rows} more (use -n)")


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """`name  value` on each line; what has no value is left out."""
    label_width = max((len(name) for name, value in fields if value), default=0)
    for name, value in fields:
        if value:
            click.echo(f"{click.style(harmless(name).ljust(label_width), bold=True)}{GAP}{shown(value)}")


def _line(row: Sequence[str], plain: Sequence[str], widths: Sequence[int], last_width: int) -> str:
    cells = []
    for cell, text, columns in zip(row[:-1], plain[:-1], widths[:-1], strict=True):
        cells.append(shown(cell) + " " * (columns - width(text)))
    cells.append(shortened(plain[-1], last_width))
    return GAP.join(cells).rstrip()


def _room_for_last(widths: Sequence[int]) -> int:
    if not sys.stdout.isatty():
        return widths[-1]
    taken = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
    return max(LEAST_COLUMNS, shutil.get_terminal_size().columns - taken)
