"""Typed words: which flags were typed, and what stood behind them? So that a line which is suggested keeps them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click

from jobyard.errors import UserError
from jobyard.quoting import joined

_SUGGESTED = re.compile(r"\byard run (?=\S)")  # how a line that is suggested begins, whatever was typed


@dataclass(frozen=True)
class TypedWords:
    """`yard run -c 2 train.py -G 1 7`: the flags are `-c 2 -G 1`, and `-c 2` alone stand before the first word."""

    verb: str
    flags: tuple[str, ...] = ()
    first_flags: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()  # all behind the first flags, as a command has it

    def line(self, words: str) -> str:
        """A line of the same flags with other words."""
        return " ".join(filter(None, (self.verb, joined(self.flags), words)))

    def command_line(self) -> str:
        """The line if all that stands behind the first flags is a command."""
        return joined((*self.verb.split(), *self.first_flags, "--", *self.rest))

    @contextmanager
    def kept_in_suggestions(self) -> Iterator[None]:
        """Lines that a refusal suggests have the verb and the flags that were typed."""
        try:
            yield
        except UserError as error:
            text = _SUGGESTED.sub(lambda _: self.line("") + " ", error.sentence)
            if text == error.sentence:
                raise
            raise type(error)(text, field=error.field) from error


def typed_words(ctx: click.Context, command: click.Command, args: Sequence[str]) -> TypedWords:
    """Of words that were parsed already: they have no unknown flag."""
    flags: list[str] = []
    behind: tuple[str, ...] | None = None
    first_flags: tuple[str, ...] = ()
    rest = list(args)
    while rest:
        found = _behind_flags(ctx, command, rest)
        flags += rest[: len(rest) - len(found)]
        if behind is None:
            first_flags, behind = tuple(flags), tuple(found)
        rest = found[1:] if ctx.allow_interspersed_args else []
    return TypedWords(ctx.command_path, tuple(flags), first_flags, behind or ())


def _behind_flags(ctx: click.Context, command: click.Command, args: Sequence[str]) -> list[str]:
    """From the first word on that is neither a flag nor the value of one."""
    parser = command.make_parser(ctx)
    parser.allow_interspersed_args = False
    given, left, _ = parser.parse_args(list(args))
    words = given.get("files")
    return [*(words if isinstance(words, tuple) else ()), *left]  # click has a mark of its own for none
