"""Session: what do all verbs share? Which yard is meant, and which output format."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any

import click

from jobyard import settings
from jobyard.cli.option_values import OneOf
from jobyard.cli.output.text import warn
from jobyard.client.api import YardClient
from jobyard.client.local import LocalYard, connect, remote_address
from jobyard.errors import UserError
from jobyard.settings import ClientKnobs

MAKE_YARDS = frozenset({"run", "submit", "add"})  # verbs that make the yard's directory where there is none


class Session:
    """One call of `yard`."""

    def __init__(self, yard: str | None, output: str, *, makes_yard: bool = True) -> None:
        self.yard = yard
        self._makes_yard = makes_yard
        self.is_json = output == "json"

    @cached_property
    def knobs(self) -> ClientKnobs:
        return settings.knobs(ClientKnobs)

    @cached_property
    def client(self) -> YardClient:
        """A client whose server answers; a local one is started where none runs. Raises UserError for a yard that is
        not there, unless the verb is one that makes it: a misspelt `--yard` must not show an empty yard."""
        if self.yard and not self._makes_yard and not settings.yard_dir(self.yard).exists():
            raise UserError(f"--yard: there is no directory {self.yard!r}; `yard run --yard {self.yard}` would make it")
        return connect(self.yard, self.knobs, warn)

    @property
    def is_remote(self) -> bool:
        """YARD_URL names the server: it is not ours to start."""
        return remote_address(self.yard) is not None

    @property
    def leaves_this_machine(self) -> bool:
        address = remote_address(self.yard)
        return address is not None and not address.is_local

    def local_yard(self, verb: str) -> LocalYard:
        """For what can only be done here. Raises UserError when YARD_URL points elsewhere."""
        if self.is_remote:
            raise UserError(f"{verb}: YARD_URL points at another server; unset it, or name a directory with --yard DIR")
        return LocalYard(settings.yard_dir(self.yard), self.knobs)


def user_here() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def with_session(function: Callable[..., int]) -> Callable[..., int]:
    """Gives a verb `--yard` and `-o`, and hands it the Session first. What it returns is the exit code."""

    @click.option("-o", "--output", type=OneOf(["table", "json"]), default="table", help="For people or programs.")
    @click.option("--yard", metavar="DIR", help="The yard's directory.")
    @click.pass_context
    @wraps(function)
    def with_options(ctx: click.Context, /, yard: str | None, output: str, **given: Any) -> int:
        makes_yard = ctx.info_name in MAKE_YARDS
        return function(Session(yard or ctx.find_root().params.get("yard"), output, makes_yard=makes_yard), **given)

    return with_options
