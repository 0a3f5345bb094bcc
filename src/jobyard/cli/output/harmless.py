"""Harmless text: what of text from outside may reach a terminal? No escape sequences, and nothing that hides."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Control sequences with what belongs to them, in 7 and 8 bits: CSI; OSC, DCS, SOS, PM and APC to their end; the rest.
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b.?"
)


def harmless(text: str) -> str:
    """Text from outside on one line, without what could steer a terminal or hide in it.

    Control characters, escape sequences, directions of writing, characters without a width and lone surrogates go.
    """
    if text.isprintable():
        return str(text)
    line = " ".join(_ESCAPE.sub("", line) for line in text.splitlines())
    return "".join(c if c.isprintable() else " " for c in line if c.isprintable() or c.isspace())


def harmless_lines(lines: Iterable[str]) -> list[str]:
    """Of a line that was written over (a progress bar) what stands there at last."""
    return [harmless(line.rstrip("\r").rsplit("\r", 1)[-1]) for line in lines]


def shown_lines(text: str) -> list[str]:
    """What a terminal would have of this output: tabs as spaces, and each line as it was written last."""
    lines = text.split("\n")
    return harmless_lines(line.expandtabs() for line in (lines if lines[-1] else lines[:-1]))
