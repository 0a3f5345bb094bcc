"""Pieces of a command of bash: what stands for a placeholder, by the quotes around it, and what does it mean there?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jobyard.model.interpreters import HOLE
from jobyard.model.placeholders import Variable

KNOWN_WORD = "x"  # in place of a value that is not asked about


class Piece(NamedTuple):
    """A placeholder where it stands in a command of bash."""

    code: str
    variables: tuple[Variable, ...]


def meaning_of(variables: Sequence[Variable], only: Variable | None) -> str:
    """Of variables in a word. With `only` this one is data, and the others are words that everybody knows."""
    return HOLE if only is None or only in variables else KNOWN_WORD


def code_of(quote: str, variables: Sequence[Variable], short: frozenset[int], *, is_word: bool) -> str:
    """What stands for a placeholder between such quotes."""
    if is_word:
        return " ".join(_word(variable, len(variables) > 1 and variable.column in short) for variable in variables)
    inside = " ".join(f"${{{variable.name}}}" for variable in variables)
    return {"": f'"{inside}"', '"': inside, "'": f"'\"{inside}\"'"}[quote]


def _word(variable: Variable, may_miss: bool) -> str:
    name = variable.name
    return f'${{{name}+"${{{name}}}"}}' if may_miss else f'"${{{name}}}"'
