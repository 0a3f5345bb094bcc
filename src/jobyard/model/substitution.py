"""Substitution: what replaces `{}`, `{1}` and others in a command, so that no data becomes code (injection)?

A value travels in a variable, and bash expands that after it has read the command. In a command of bash `{}` is
`"${YARD_LINE}"` outside quotes, `${YARD_LINE}` inside double and `'"${YARD_LINE}"'` inside single quotes. In words that
no shell reads it is the value itself. Where it stands in code of another kind, or where this small reader of bash's
quoting is not sure, it is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from jobyard.errors import UserError
from jobyard.model.bash_pieces import Piece, code_of, meaning_of
from jobyard.model.bash_reader import Asked, Reader
from jobyard.model.expansion import check_expansion
from jobyard.model.inputs import Inputs, Row
from jobyard.model.interpreters import HOLE, UNKNOWN, Verdict, judge
from jobyard.model.job import Command
from jobyard.model.placeholders import (
    LINE,
    ONLY_LINE,
    PLACEHOLDER,
    SLOT,
    TAKEN,
    Placeholder,
    Placeholders,
    Variable,
    values_of,
)
from jobyard.model.unsafe_placeholder import WAY_OUT, UnsafePlaceholder
from jobyard.quoting import quoted

SLOT_HOLE = "\0"  # no value holds a NUL character
_SHOWN_MOST = 200  # characters of code in a way out
_PASSES_MOST = 4
_WORK_MOST = 10_000_000  # characters that are read again for one variable after another: some seconds
_UNKNOWN_MOST = 50  # different words in braces that may be a placeholder by mistake: each is a reading
_EVALUATES = re.compile(r"eval|exec|compile|system|popen|subprocess|spawn")


class Substituted(NamedTuple):
    pieces: tuple[str | Piece, ...]
    no_dash: str = ""  # the program for which a value that begins with a dash would be an option

    @property
    def shell(self) -> str:
        """The command that finds its values in variables."""
        return "".join(piece if isinstance(piece, str) else piece.code for piece in self.pieces)

    @property
    def variables(self) -> tuple[Variable, ...]:
        found = (piece.variables for piece in self.pieces if isinstance(piece, Piece))
        return tuple(dict.fromkeys(chain.from_iterable(found)))

    def shown(self, values: Mapping[str, str]) -> str:
        """The command with its values, which are such as mean the same inside quotes and outside."""
        return "".join(piece if isinstance(piece, str) else _shown(piece, values) for piece in self.pieces)


def _shown(piece: Piece, values: Mapping[str, str]) -> str:
    if piece.variables[0].name == SLOT:
        return piece.code
    return " ".join(values[variable.name] for variable in piece.variables if variable.name in values)


def placeholders_of(command: Command) -> Placeholders:
    return Placeholders.of(command.inputs) if command.inputs is not None else ONLY_LINE


def check(command: Command) -> None:
    """Raises UserError unless every value of the inputs is data wherever a placeholder stands in the command."""
    inputs = command.inputs
    if inputs is None:
        return
    known = placeholders_of(command)
    words = [command.shell] if command.shell else command.argv
    check_expansion(words, inputs, known, is_shell=bool(command.shell))
    if command.script is not None:
        return _refuse_unknown_words(command.argv, known, is_data=True)
    if command.shell:
        done = substituted(command.shell, known)
        _refuse_unknown(command.shell, known)
        used = done.variables if done.no_dash else ()
        if len(used) * (len(command.shell) + known.uses(command.shell)) < _WORK_MOST:  # else each may be an option
            used = tuple(each for each in used if _read(command.shell, known, only=each).no_dash)
        return _refuse_dashes(inputs, used, done.no_dash)
    no_dash = _of_words(command.argv, known)
    _refuse_unknown_words(command.argv, known, is_data=False)
    if no_dash:
        used = variables_in(command.argv, known)
        if len(used) * (sum(map(len, command.argv)) + sum(map(known.uses, command.argv))) < _WORK_MOST:
            used = tuple(each for each in used if _of_words(command.argv, known, each))
        _refuse_dashes(inputs, used, no_dash)


def uses_slot(command: Command) -> bool:
    """Does `{%}` stand in it?"""
    known = placeholders_of(command)
    if command.inputs is None:
        return False
    return any(variable.name == SLOT for variable in variables_in([command.shell, *command.argv], known))


def _refuse_dashes(inputs: Inputs, variables: Sequence[Variable], no_dash: str) -> None:
    for variable in variables:
        for number, value in enumerate(variable.all_values(inputs), start=1):
            if value.startswith(("-", "+")):
                raise UserError(
                    f"line {number} begins with {value[0]!r}, and {no_dash} would take it for an option; "
                    f"write ./{PLACEHOLDER} for a file, or change the line",
                    field="command",
                )


def _refuse_unknown(shell: str, known: Placeholders) -> None:
    for text in list(dict.fromkeys(known.unknown(shell)))[:_UNKNOWN_MOST]:
        try:
            found = _read(shell, known._replace(taken=text)).pieces
        except UnsafePlaceholder:  # it is code of somebody else, as in awk '{print}'
            continue
        if any(isinstance(piece, Piece) and TAKEN in piece.variables for piece in found):
            raise _unknown(text, known)


def _refuse_unknown_words(argv: Sequence[str], known: Placeholders, *, is_data: bool) -> None:
    for text in list(dict.fromkeys(chain.from_iterable(map(known.unknown, argv))))[:_UNKNOWN_MOST]:
        if is_data or not judge([word.replace(text, HOLE) for word in argv]).refusal:
            raise _unknown(text, known)


def _unknown(text: str, known: Placeholders) -> UserError:
    return UserError(f"there is no {text} here; known: {known.told}", field="command")


def variables_in(words: Sequence[str], known: Placeholders) -> tuple[Variable, ...]:
    """Those that stand for the placeholders in these words."""
    found = (part.words for word in words for part in known.found(word) if isinstance(part, Placeholder))
    return tuple(dict.fromkeys(chain.from_iterable(found)))


def row_of(command: Command, ordinal: int) -> Row | None:
    """That of the task at this place of its group."""
    inputs = command.inputs
    return None if inputs is None else inputs.row(inputs.number_of(ordinal))


def variables_of(command: Command, row: Row) -> dict[str, str]:
    """What a task of this row finds in its environment."""
    return values_of(own_variables(command, of_words=False), row)


def own_variables(command: Command, *, of_words: bool = True) -> list[Variable]:
    """What holds the values of one task: its columns, and what its command has made of them."""
    known = placeholders_of(command)
    used = variables_in(command.argv, known) if of_words else ()
    return list(dict.fromkeys([*_of_shell(command.shell, known), *used]))


@lru_cache(maxsize=64)
def _of_shell(shell: str, known: Placeholders) -> tuple[Variable, ...]:
    return (*known.base(), *(substituted(shell, known).variables if shell else ()))


def words_with(command: Command, row: Row) -> tuple[str, ...]:
    """Of a command without a shell: the values in place of placeholders, and SLOT_HOLE for a slot.

    A placeholder that is a word by itself becomes as many words as it has values.
    """
    done: list[str] = []
    for parts in _parts_of(command.argv, placeholders_of(command)):
        if len(parts) == 1 and isinstance(parts[0], Placeholder) and len(parts[0].words) > 1:
            done.extend(values_of(parts[0].words, row).values())
        else:
            done.append("".join(part if isinstance(part, str) else _text_of(part, row) for part in parts))
    return tuple(done)


@lru_cache(maxsize=64)
def _parts_of(argv: tuple[str, ...], known: Placeholders) -> list[list[str | Placeholder]]:
    """Of each word: its placeholders, and the texts between. Asked for every task."""
    return [[part for part in known.found(word) if part] for word in argv]


def _text_of(found: Placeholder, row: Row) -> str:
    return SLOT_HOLE if found.inside[0].name == SLOT else " ".join(values_of(found.inside, row).values())


def words_of_sh(command: Command) -> list[str]:
    """The same for a shell that has the values in variables: each is a word of sh, or several."""
    known = placeholders_of(command)
    done = []
    for word in command.argv:
        parts = [part for part in known.found(word) if part]
        if len(parts) == 1 and isinstance(parts[0], Placeholder):
            done.append(code_of("", parts[0].words, known.short, is_word=True))
        else:
            done.append("".join(_in_sh(part, known) for part in parts) or "''")
    return done


def _in_sh(part: str | Placeholder, known: Placeholders) -> str:
    return shlex.quote(part) if isinstance(part, str) else code_of("", part.inside, known.short, is_word=False)


@lru_cache(maxsize=256)
def substituted(shell: str, known: Placeholders = ONLY_LINE) -> Substituted:
    """The command of bash that finds its values in variables. Raises UnsafePlaceholder."""
    if not known.stands_in(shell):
        return Substituted((shell,))
    if known.short:  # the last row has fewer words, and no other word may take the place of a program then
        _read(shell, known._replace(is_narrow=True))
    return _read(shell, known)


def _read(shell: str, known: Placeholders, *, is_inner: bool = False, only: Variable | None = None) -> Substituted:
    """With `only` this variable is data, and the others are words that everybody knows."""
    kept: frozenset[str] = frozenset()

    def refuse(verdict: Verdict) -> None:
        if verdict.refusal and is_inner:
            raise UnsafePlaceholder(verdict.refusal)
        _raise(verdict, known, [shell])

    asked = Asked(known, refuse, only).about(shell)
    for _ in range(_PASSES_MOST):
        reader = Reader(shell, kept, asked)
        reader.read()
        if reader.kept <= kept:
            return Substituted(tuple(reader.pieces), reader.no_dash)
        kept |= reader.kept  # a second pass: a function or a loop may use a variable before the line that sets it
    raise UnsafePlaceholder("is copied from variable to variable", texts=known.texts_in(shell))


def _of_words(argv: Sequence[str], known: Placeholders, only: Variable | None = None) -> str:
    words: list[str] = []
    for word in argv:
        parts = [part for part in known.found(word) if part]
        if len(parts) == 1 and isinstance(parts[0], Placeholder):
            words += [meaning_of((variable,), only) for variable in parts[0].words]
        else:
            words.append("".join(part if isinstance(part, str) else meaning_of(part.inside, only) for part in parts))
    verdict = judge(words)
    _raise(verdict, known, argv)
    if verdict.inner:
        text = " ".join(argv)
        Reader(text, asked=Asked(known, lambda each: _raise(each, known, argv)).about(text)).read_inner(verdict.inner)
    return verdict.no_dash


def _raise(verdict: Verdict, known: Placeholders, texts: Sequence[str]) -> None:
    """Unless all is data in these texts."""
    if verdict.refusal:
        variables = variables_in(texts, known)
        way_out = _way_out(verdict, variables[0].name if len(variables) == 1 else "")
        written = list(dict.fromkeys(chain.from_iterable(map(known.texts_in, texts))))
        raise UnsafePlaceholder(verdict.refusal, way_out, written)


def _way_out(verdict: Verdict, variable: str) -> str:
    """How to write the code so that the value is data in it, if it can be: where only one variable is concerned."""
    code = verdict.code
    if verdict.way_out:
        return verdict.way_out
    if not variable or not code or code == HOLE or UNKNOWN in code or len(code) > _SHOWN_MOST:
        return WAY_OUT
    if verdict.is_python:
        return WAY_OUT if _EVALUATES.search(code) else f'write os.environ["{variable}"] for it in the code'
    try:
        inner = _read(code.replace(HOLE, PLACEHOLDER), ONLY_LINE, is_inner=True).shell
    except UnsafePlaceholder:
        return WAY_OUT
    return f"write {quoted(inner.replace(LINE, variable))} for that word"
