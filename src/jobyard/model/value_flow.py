"""Value flow: which variables of a command of bash hold a value, and what reads variables as arithmetic or as names?

Bash runs `$(...)` inside an index, and evaluates indexes in all arithmetic and wherever it takes a text for a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import dropwhile

from jobyard.model.interpreters import (
    ASSIGNMENT,
    BEFORE_BUILTINS,
    DECLARING,
    HOLE,
    RESERVED,
    UNKNOWN,
    name_of,
)

# In place of a variable's name: what else holds a value.
ARGUMENTS, STDIN, FUNCTION = "1", "<", "()"
NO_VARIABLES = frozenset({ARGUMENTS, STDIN, FUNCTION, "0"})
_READING = {"read": "REPLY", "mapfile": "MAPFILE", "readarray": "MAPFILE"}
_NAMING = DECLARING | frozenset(
    ["let", "unset", "read", "mapfile", "readarray", "printf", "test", "[", "wait", "getopts"]
)
_MENTION = re.compile(r"\$\{?[!#]?(\w+|[@*])")
_LITERAL_INDEX = r"\[(?:[@*]|-?\d+)\]"
_INDEXED = re.compile(rf"\w(?!{_LITERAL_INDEX})\[")
# `${x:-y}` and `${x:1:2}` evaluate nothing that a variable holds.
_PLAIN_BRACES = re.compile(
    rf"\$\{{#?\w+(?:{_LITERAL_INDEX})?(?::[-=?+][^\[]*|: ?-?\d+(?:: ?-?\d+)?|[^\[:@]*)\}}|\$\{{[@*][^\[:@]*\}}"
)
# They do not read what a substitution finds as its standard input.
_NO_INPUT = frozenset(
    "nproc date hostname pwd whoami basename dirname seq id uname mktemp echo printf which git".split()  # noqa: SIM905
)


def kept_by(words: Sequence[str], *, is_fed: bool) -> set[str]:
    """The variables that the command keeps a value in. `is_fed`: its input may be a value."""
    command = _bare(words)
    names = {match[1] for word in words if HOLE in word and (match := ASSIGNMENT.match(word))}
    if command and command[0] in ("for", "select") and (HOLE in "".join(words) or "in" not in command):
        names.add(command[1] if len(command) > 1 else "")
    if command and command[0] == "set" and HOLE in "".join(words):
        names.add(ARGUMENTS)
    if is_fed and command and command[0] in (*_READING, "select", "getopts"):
        read = {word for word in command[1:] if re.fullmatch(r"\w+", word)}
        names |= {*read, _READING.get(command[0], "REPLY")}
    return names


def calculates(words: Sequence[str]) -> bool:
    """Does it read variables as arithmetic or names, which bash evaluates as code?"""
    if any((match := ASSIGNMENT.match(word)) and _INDEXED.search(match[0]) for word in words):
        return True
    command = _bare(words)
    if not command or command[0] not in _NAMING:
        return False
    is_declaring = command[0] in DECLARING
    flags = (word for word in command[1:] if is_declaring and word.startswith(("-", "+", UNKNOWN)))
    return (
        command[0] == "let"
        or any(map(_INDEXED.search, command))
        or any(map(re.compile(f"[in{UNKNOWN}]").search, flags))
    )


def evaluates(braces: str) -> bool:
    """Is there an index, an offset or a name in `${...}` that bash has to work out?"""
    return _PLAIN_BRACES.fullmatch(braces) is None


def mentioned(text: str) -> Iterable[str]:
    """The variables that a text of bash expands."""
    return _MENTION.findall(text)


def reads_input(code: str) -> bool:
    """May a substitution print what it finds as its standard input?"""
    return (code.split() or [""])[0] not in _NO_INPUT or "|" in code or ";" in code or "&" in code


def _bare(words: Sequence[str]) -> list[str]:
    """Without assignments, and what may stand before a command."""
    rest = list(dropwhile(lambda word: word in RESERVED or ASSIGNMENT.match(word) is not None, words))
    return (
        list(dropwhile(lambda word: word in BEFORE_BUILTINS or word.startswith("-"), rest))
        if rest and name_of(rest[0]) in BEFORE_BUILTINS
        else rest
    )
