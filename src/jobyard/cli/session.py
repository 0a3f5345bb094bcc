"""Session: what do all verbs share? Which yard is meant, and which output format."""

from __future__ import annotations

import os
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
from jobyard.quoting import quoted
from jobyard.settings import ClientKnobs

MAKE_YARDS = frozenset({"run", "submit", "add"})  # verbs that make the yard's directory where there is none


class Session:
    """One call of `yard`."""

    def __init__(self, yard: str | None, output: str, *, makes_yard: bool = True) -> None:
        self.yard = yard
        self._makes_yard = makes_yard
        self.is_json = output == "json"
        self.is_csv = output == "csv"

    @cached_property
    def knobs(self) -> ClientKnobs:
        return settings.knobs(ClientKnobs)

    @cached_property
    def client(self) -> YardClient:
        """A client whose server answers; a local one is started where none runs. Raises UserError for a yard that is
        not there, unless the verb is one that makes it: a misspelt `--yard` or YARD_DIR must not show an empty yard."""
        self._refuse_missing_yard()
        return connect(self.yard, self.knobs, warn)

    def _refuse_missing_yard(self) -> None:
        named = self.yard or ("" if self.is_remote else os.environ.get("YARD_DIR", ""))
        if not named or self._makes_yard or settings.yard_dir(named).exists():
            return
        if self.yard:
            raise UserError(f"--yard: there is no directory {named!r}; `yard run --yard {quoted(named)}` would make it")
        raise UserError(f"YARD_DIR: there is no directory {named!r}; correct it, or `yard run -- CMD` makes that yard")

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


FORMATS = ("table", "json")
_SBATCH_MEANT = "for a file of what tasks print write --output {}"


def _has_output_file(function: Callable[..., int]) -> bool:
    """Of `run` and `submit`, `--output` says where tasks write; `--output json` still means `-o json`."""
    return any("--output" in parameter.opts for parameter in getattr(function, "__click_params__", ()))


def with_session(function: Callable[..., int], *, formats: tuple[str, ...] = FORMATS) -> Callable[..., int]:
    """Gives a verb `--yard` and `-o`, and hands it the Session first. What it returns is the exit code."""

    has_file = _has_output_file(function)
    flags = ("-o",) if has_file else ("-o", "--output")
    kind = OneOf(formats, _SBATCH_MEANT if has_file else "")

    @click.option(*flags, "output_format", type=kind, default="table", help="For people or programs.")
    @click.option("--yard", metavar="DIR", help="The yard's directory.")
    @click.pass_context
    @wraps(function)
    def with_options(ctx: click.Context, /, yard: str | None, output_format: str, **given: Any) -> int:
        makes_yard = ctx.info_name in MAKE_YARDS
        return function(
            Session(yard or ctx.find_root().params.get("yard"), output_format, makes_yard=makes_yard), **given
        )

    return with_options
