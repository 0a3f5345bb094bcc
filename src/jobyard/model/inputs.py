"""Inputs: which values has each task of a job? Kept as sources: a product of a million rows is two short lists."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Annotated, NamedTuple

from jobyard.model.limits import (
    CHOSEN_MOST,
    COLUMNS_MOST,
    NAME_MOST,
    ROWS_MOST,
    SOURCES_MOST,
    Items,
    Number,
    Text,
)
from jobyard.model.lines import Lines

RowNumber = Annotated[int, Number(0, ROWS_MOST)]


@dataclass(frozen=True, slots=True)
class Column:
    values: Lines
    name: Annotated[str, Text(NAME_MOST, is_line=True)] = ""  # for `{lr}` and YARD_PARAM_lr


@dataclass(frozen=True, slots=True)
class Source:
    """Columns whose rows belong together. The last columns may have one value less: the last row ends before them."""

    columns: Annotated[tuple[Column, ...], Items(COLUMNS_MOST, 1)]
    whole: Lines | None = None  # each row as it was written, where `{}` is that and not the values with blanks between

    def __len__(self) -> int:
        return len(self.columns[0].values)

    def values(self, index: int) -> list[str | None]:
        return [column.values[index] if index < len(column.values) else None for column in self.columns]


class Row(NamedTuple):
    number: int  # from 0, in the whole product
    values: list[str | None]  # of each column; None where a last row ends before it
    line: str  # all of them in one text


@dataclass(frozen=True)
class Inputs:
    """A row for each task: every row of each source with every row of the others, of which the last varies fastest."""

    sources: Annotated[tuple[Source, ...], Items(SOURCES_MOST, 1)]
    # First and last of the rows that are left, counted from 0; empty: all.
    chosen: Annotated[tuple[tuple[RowNumber, RowNumber], ...], Items(CHOSEN_MOST)] = ()

    def __len__(self) -> int:
        return self._offsets[-1] if self.chosen else self.product

    @cached_property
    def product(self) -> int:
        return prod(map(len, self.sources))

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(column for source in self.sources for column in source.columns)

    @cached_property
    def short(self) -> frozenset[int]:
        """The columns that a last row ends before."""
        lengths = [(len(column.values), len(source)) for source in self.sources for column in source.columns]
        return frozenset(index for index, (length, rows) in enumerate(lengths) if length < rows)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def has_whole(self) -> bool:
        return any(source.whole is not None for source in self.sources)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Of each source: how many rows have the same row of it, one after another."""
        after = [len(source) for source in self.sources[1:]]
        return tuple(prod(after[index:]) for index in range(len(self.sources)))

    @cached_property
    def _offsets(self) -> tuple[int, ...]:
        return (0, *accumulate(last - first + 1 for first, last in self.chosen))

    def number_of(self, ordinal: int) -> int:
        """Which row of the product has the task at this place? Each keeps its row when others are left out."""
        if not self.chosen:
            return ordinal
        piece = bisect_right(self._offsets, ordinal) - 1
        return self.chosen[piece][0] + ordinal - self._offsets[piece]

    def row(self, number: int) -> Row:
        values: list[str | None] = []
        parts: list[str] = []
        for source, stride in zip(self.sources, self.strides, strict=True):
            index = number // stride % len(source)
            own = source.values(index)
            values += own
            parts += [value for value in own if value is not None] if source.whole is None else [source.whole[index]]
        return Row(number, values, " ".join(parts))

    def named(self, number: int) -> dict[str, str]:
        """The values of columns that have a name."""
        pairs = zip(self.columns, self.row(number).values, strict=True)
        return {column.name: value for column, value in pairs if column.name and value is not None}
