"""Expansion: how large may a command become when the values of a task stand in it?

Counted before the command is read: a short request may ask for gigabytes, which everybody on the server waits for.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.errors import UserError
from jobyard.model.inputs import Inputs
from jobyard.model.limits import COMMAND_BYTES_MOST, WORD_BYTES_MOST, WORDS_MOST
from jobyard.model.lines import Lines
from jobyard.model.placeholders import LINE, Placeholder, Placeholders, Variable

_WAY_OUT = "shorten the values, or pass the name of a file that holds them"


def check_expansion(words: Sequence[str], inputs: Inputs, known: Placeholders, *, is_shell: bool) -> None:
    """Raises UserError where there are too many values in these words, or too long ones for a program to start."""
    if (uses := sum(map(known.uses, words))) > WORDS_MOST:
        raise UserError(
            f"its placeholders stand for {uses:,} values; at most {WORDS_MOST:,} are possible: write them fewer times",
            field="command",
        )
    if _bound(inputs) * (uses + 1) + sum(map(_length, words)) <= WORD_BYTES_MOST:
        return
    lengths = _Lengths(inputs)
    _refuse(f"{LINE}, which holds all values of a task,", lengths.of(Variable(LINE, -1)), WORD_BYTES_MOST)
    sizes = [_size(word, known, lengths) for word in words]
    if not is_shell:
        _refuse("a word of it", max(sizes, default=0), WORD_BYTES_MOST)
    _refuse("it", sum(sizes), COMMAND_BYTES_MOST)


def _refuse(what: str, size: int, most: int) -> None:
    if size > most:
        raise UserError(
            f"{what} can have {size:,} bytes with its values; at most {most:,} fit: {_WAY_OUT}", field="command"
        )


def _size(word: str, known: Placeholders, lengths: _Lengths) -> int:
    """Of a word, or a line of bash, with the longest values."""
    size = 0
    for part in known.found(word):
        if isinstance(part, Placeholder):
            size += sum(map(lengths.of, part.inside)) + len(part.inside) - 1
        else:
            size += _length(part)
    return size


class _Lengths:
    """Bytes of the longest value of each variable; each column is looked through once."""

    def __init__(self, inputs: Inputs) -> None:
        self._columns = [_longest(column.values) for column in inputs.columns]
        parts = []
        at = 0
        for source in inputs.sources:
            own = self._columns[at : at + len(source.columns)]
            at += len(own)
            parts.append(sum(own) + len(own) - 1 if source.whole is None else _longest(source.whole))
        self._row = sum(parts) + len(parts) - 1

    def of(self, variable: Variable) -> int:
        if variable.column >= 0:
            return self._columns[variable.column]
        return self._row if variable.column == -1 else len("10000000")  # a number of a task or a slot


def _bound(inputs: Inputs) -> int:
    """No row is longer than all values together: with small inputs no value is looked at."""
    lines = [column.values for column in inputs.columns]
    lines += [source.whole for source in inputs.sources if source.whole is not None]
    return sum(len(each.text) * (1 if each.text.isascii() else 4) + 1 for each in lines)


def _longest(lines: Lines) -> int:
    return max(map(len, lines) if lines.text.isascii() else map(_length, lines), default=0)


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogateescape"))
