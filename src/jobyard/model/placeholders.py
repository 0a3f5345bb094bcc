"""Placeholders: what do `{}`, `{2}`, `{/.}`, `{lr}` and `{#}` in a command stand for, and in which variables is it?

Values travel in variables, which bash expands after it has read the command: YARD_LINE, YARD_1, YARD_PARAM_lr. What is
made of a value, as its file name for `{/}`, is worked out here and travels in a variable too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from os.path import dirname
from typing import NamedTuple

from jobyard.model.inputs import Inputs, Row

PLACEHOLDER = "{}"
LINE, SEQ, SLOT = "YARD_LINE", "YARD_SEQ", "YARD_SLOT"
PARAM = "YARD_PARAM_"
_HOWS = {".": "NOEXT", "/": "BASE", "//": "DIR", "/.": "STEM"}  # as in YARD_STEM_1
# `${1}` and `${x}` are bash's own, and so is what holds a blank, a comma or two dots.
_FORM = re.compile(r"\{\}|(?<!\$)\{(?:[#%]|(?P<key>[1-9]\d{0,5}|[A-Za-z_]\w*)?(?P<how>//|/\.|/|\.)?)\}", re.ASCII)
_ROW, _NUMBER, _SLOT, _NONE = -1, -2, -3, -4  # in place of a column
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)  # of a column: then it is a variable's name too


class Variable(NamedTuple):
    """What holds a value, or what is made of it."""

    name: str
    column: int
    how: str = ""

    def value(self, row: Row) -> str | None:
        """None: a last row that ends before this column; and the slot, which only the task itself knows."""
        if self.column in (_SLOT, _NONE):
            return None
        if self.column == _NUMBER:
            return str(row.number + 1)
        value = row.line if self.column == _ROW else row.values[self.column]
        return None if value is None else made(value, self.how)

    def all_values(self, inputs: Inputs) -> Iterable[str]:
        """Each that it can have; of a row only how it begins. None of what is a number."""
        if self.column < _ROW:
            return ()
        whole = inputs.sources[0].whole if self.column == _ROW else None
        column = inputs.columns[max(0, self.column)]
        return (made(value, self.how) for value in (column.values if whole is None else whole))


TAKEN = Variable("", _NONE)


class Placeholder(NamedTuple):
    text: str  # as it is written
    words: tuple[Variable, ...]  # where it is a word of its own: each is one
    inside: tuple[Variable, ...]  # inside a word, or quotes: with blanks between


class Placeholders(NamedTuple):
    """Those that a command has: they depend on how many columns there are, and on their names."""

    names: tuple[str, ...] = ("",)  # of all columns, in order
    short: frozenset[int] = frozenset()  # columns that the last row may end before
    has_whole: bool = False  # `{}` is not made of the columns
    only_line: bool = False  # `{}` and nothing else: of a command inside another
    is_narrow: bool = False  # as in a last row that ends early
    taken: str = ""  # a text that is taken for one, to find out what it would be

    @classmethod
    def of(cls, inputs: Inputs) -> Placeholders:
        return cls(inputs.names, inputs.short, inputs.has_whole)

    @property
    def is_one(self) -> bool:
        """Is the line the value of the only column?"""
        return len(self.names) == 1 and not self.has_whole

    def at(self, text: str, position: int) -> Placeholder | None:
        """The one that stands here. None: none does, or one that these inputs do not have."""
        match = _FORM.match(text, position)
        return self._meant(match) if match is not None else None

    def found(self, text: str) -> Iterator[Placeholder | str]:
        """All that stand in a text, and the texts between them."""
        begin = 0
        for match in _FORM.finditer(text):
            if (found := self._meant(match)) is not None:
                yield text[begin : match.start()]
                yield found
                begin = match.end()
        yield text[begin:]

    def stands_in(self, text: str, begin: int = 0, end: int | None = None) -> bool:
        """Does one stand between these positions?"""
        matches = _FORM.finditer(text, begin, len(text) if end is None else end)
        return any(self._meant(match) is not None for match in matches)

    def texts_in(self, text: str) -> list[str]:
        """Those that stand there, as they are written."""
        return list(dict.fromkeys(part.text for part in self.found(text) if isinstance(part, Placeholder)))

    def variables_in(self, text: str) -> list[Variable]:
        found = (part.inside for part in self.found(text) if isinstance(part, Placeholder))
        return list(dict.fromkeys(chain.from_iterable(found)))

    def last(self, text: str) -> int:
        """Where the last one begins; -1: there is none."""
        return max((match.start() for match in _FORM.finditer(text) if self._meant(match) is not None), default=-1)

    def uses(self, text: str) -> int:
        """How many values stand there at most: `{}` is one of each column. Quick, whatever the text is."""
        if self.only_line:
            return text.count(PLACEHOLDER)
        rows = sum(not match["key"] and match[0] not in ("{#}", "{%}") for match in _FORM.finditer(text))
        return rows * len(self.names) + sum(bool(match["key"]) for match in _FORM.finditer(text))

    def unknown(self, text: str) -> list[str]:
        """What looks like one of ours and is none: a number that no column has, or a name beside other names."""
        if self.only_line:
            return []
        found = [match for match in _FORM.finditer(text) if match["key"] and self._meant(match) is None]
        return [match[0] for match in found if match["key"].isdecimal() or any(self.names)]

    def nameless(self, text: str) -> list[str]:
        """What would be a named column, where no column has a name."""
        if self.only_line or any(self.names):
            return []
        found = (match for match in _FORM.finditer(text) if match["key"] and not match["key"].isdecimal())
        return [match[0] for match in found if self._meant(match) is None]

    @property
    def told(self) -> str:
        """The known ones, as a person is told of them."""
        numbers = ["{1}", *([f"to {{{len(self.names)}}}"] if len(self.names) > 1 else [])]
        names = [f"{{{name}}}" for name in self.names if name]
        return ", ".join(["{}", " ".join(numbers), *names[:10], "{#} and {%}"])

    def base(self) -> list[Variable]:
        """What each task has, whatever its command says."""
        if self.only_line:
            return [Variable(LINE, _ROW)]
        found = [Variable(LINE, _ROW), Variable(SEQ, _NUMBER)]
        if not self.is_one:
            found += [Variable(f"YARD_{index + 1}", index) for index in range(len(self.names))]
        return found + [Variable(f"{PARAM}{name}", index) for index, name in enumerate(self.names) if name]

    def _meant(self, match: re.Match[str]) -> Placeholder | None:
        text, key, how = match[0], match["key"] or "", match["how"] or ""
        if text == self.taken:
            return _single(text, TAKEN)
        if self.only_line:
            return self._of_row(text, "") if text == "{}" else None
        if text == "{#}":
            return _single(text, Variable(SEQ, _NUMBER))
        if text == "{%}":
            return _single(text, Variable(SLOT, _SLOT))
        if not key:
            return self._of_row(text, how)
        if key.isdecimal():
            index = int(key) - 1
            return _single(text, self._of_column(index, how)) if index < len(self.names) else None
        if key not in self.names:
            return None
        return _single(text, Variable(_called(f"PARAM_{key}", how), self.names.index(key), how))

    def _of_row(self, text: str, how: str) -> Placeholder:
        line = (Variable(LINE, _ROW),)
        if not how and (self.is_one or self.has_whole):
            return Placeholder(text, line, line)
        columns = tuple(self._of_column(index, how) for index in range(len(self.names)))
        return Placeholder(text, columns[:1] if self.is_narrow else columns, columns if how else line)

    def _of_column(self, index: int, how: str) -> Variable:
        return Variable(_called("LINE" if self.is_one else str(index + 1), how), index, how)


ONLY_LINE = Placeholders(only_line=True)


def _single(text: str, variable: Variable) -> Placeholder:
    return Placeholder(text, (variable,), (variable,))


def _called(key: str, how: str) -> str:
    return f"YARD_{_HOWS[how]}_{key}" if how else f"YARD_{key}"


def made(value: str, how: str) -> str:
    """What a placeholder makes of a value, as GNU parallel does."""
    match how:
        case "/":
            return value.rpartition("/")[2]
        case "//":
            found = dirname(value.rstrip("/")) or ("/" if value.startswith("/") else ".")
            return found if found.strip("/") else "/"  # of //a too
        case ".":
            return _without_extension(value)
        case "/.":
            return _without_extension(value.rpartition("/")[2])
        case _:
            return value


def _without_extension(value: str) -> str:
    before, dot, after = value.rpartition(".")
    return before if dot and "/" not in after else value


def values_of(variables: Iterable[Variable], row: Row) -> dict[str, str]:
    """By the names of the variables; without those that this row does not have."""
    found = ((variable.name, variable.value(row)) for variable in variables)
    return {name: value for name, value in found if value is not None}
