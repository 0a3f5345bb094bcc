"""Quoting: how are words written so that bash reads the same words back when the line is pasted?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=[\w@%+=:,./-]*", re.ASCII)  # which needs no quotes elsewhere
_BRACES = re.compile(r"\{(?!\w*\.\.)[\w#%/.]*\}", re.ASCII)  # `{}` and `{1/.}`: bash expands others
_ESCAPES = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\", "'": r"\'"}


def quoted(word: str) -> str:
    """The word on one line, with nothing that a terminal takes for more than a letter: `$'a\\nb'` for a line break.

    A byte that is no text, as files may have in their names, is written as a number.
    """
    if word.isprintable():
        is_plain = shlex.quote(bare := _BRACES.sub("x", word)) == bare
        return word if is_plain else shlex.quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def joined(words: Sequence[str]) -> str:
    """Of a whole command: a first word such as `a=b` would set a variable instead."""
    found = list(map(quoted, words))
    if found and _ASSIGNMENT.fullmatch(found[0]):
        found[0] = f"'{found[0]}'"
    return " ".join(found)


def quoted_file(path: str) -> str:
    """For a program that would take a leading dash for an option."""
    return quoted(f"./{path}" if path.startswith("-") else path)


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    # As bytes: a number of Unicode is read by the locale of the shell.
    is_byte = "\udc80" <= char <= "\udcff"  # of a name that is no UTF-8 (PEP 383)
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape" if is_byte else "surrogatepass"))
