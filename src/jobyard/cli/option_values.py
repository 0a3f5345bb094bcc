"""Option values (types): which values may an option have, and what is said of another one?"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import click

from jobyard.errors import UserError
from jobyard.quoting import quoted


class WholeNumber(click.IntRange):
    """A whole number, within its range."""

    def _describe_range(self) -> str:
        """Nothing: the help says in words what matters."""
        return ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            most = f" to {self.max}" if self.max is not None else ""
            wanted = f"a whole number from {self.min}{most or ' on'}"
            raise UserError(
                f"{_option(param)}: {value!r:.40} is not {wanted}; write for example {self.min or 1}"
            ) from None


class OneOf(click.Choice):  # type: ignore[type-arg]  # generic from click 8.2 on
    """One of a few words. `meant` says what else somebody may have meant, with the value in place of `{}`."""

    def __init__(self, choices: Sequence[str], meant: str = "", *, case_sensitive: bool = True) -> None:
        super().__init__(choices, case_sensitive)
        self._meant = meant

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            near = get_close_matches(str(value) if self.case_sensitive else str(value).lower(), self.choices, n=1)
            hint = f"did you mean {near[0]}?" if near else f"write {_listed(self.choices)}"
            if self._meant and not near:
                hint += f"; {self._meant.format(quoted(str(value)))}"
            raise UserError(f"{_option(param)}: unknown value {value!r:.40}; {hint}") from None


class ListOf(OneOf):
    """Some of a few words, with commas between, in any case: a tuple of them."""

    def __init__(self, choices: Sequence[str]) -> None:
        super().__init__(choices, case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        return tuple(super(ListOf, self).convert(word.strip(), param, ctx) for word in value.split(","))


def _option(param: click.Parameter | None) -> str:
    return max(param.opts, key=len) if param is not None else "a value"


def _listed(words: Any) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else str(last)
