"""Yard in Python: how is a yard reached, and how are jobs submitted and found?"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from jobyard import settings
from jobyard.client.address import Address, parse_address
from jobyard.client.api import YardClient
from jobyard.client.local import connect, remote_address
from jobyard.errors import UserError
from jobyard.python_api.asynchronous import AsyncYard
from jobyard.python_api.background import awaited
from jobyard.python_api.display import JobTable
from jobyard.python_api.field_types import JobFields
from jobyard.python_api.function_job import FunctionJob
from jobyard.python_api.functions import YardFunction, calls_of, calls_of_job, submit_calls
from jobyard.python_api.job import Job
from jobyard.python_api.spec import refused_as_said, spec_from
from jobyard.settings import ClientKnobs
from jobyard.wire.views import NodeView

P = ParamSpec("P")
T = TypeVar("T")
_ARGUMENTS = {"YARD_URL": "url", "YARD_TOKEN": "token"}  # whose variables an address is refused by
JOBS_MOST = 100  # that `jobs` asks for, unless the caller says how many


class Yard:
    """A yard: the one that `yard` on the command line means, unless an address or a directory is given.

    It is reached at the first call, and its server started where none runs. Safe to use from several threads. In a
    `with` it is reached at once; nothing that was submitted depends on its end.
    """

    def __init__(
        self, url: str | None = None, *, token: str = "", directory: str | os.PathLike[str] | None = None
    ) -> None:
        """`url` as in YARD_URL. Raises UserError for what can be no address."""
        if url is not None and directory is not None:
            raise UserError("url and directory: they name two yards; leave one of them out")
        self._directory = os.fspath(directory) if directory is not None else None
        self._address = _address(url, token) if url is not None else remote_address(self._directory)

    @cached_property
    def client(self) -> YardClient:
        """All that can be asked of a yard, as docs/api.md has it. Raises Unreachable."""
        knobs = settings.knobs(ClientKnobs)
        if self._address is None:
            return connect(self._directory, knobs, warnings.warn)
        client = YardClient(self._address, knobs)
        client.server()
        return client

    def __enter__(self) -> Yard:
        _ = self.client
        return self

    def __exit__(self, *_: object) -> None:
        """Jobs go on."""

    async def __aenter__(self) -> AsyncYard:
        """The same yard for an event loop."""
        await awaited(lambda: self.client)
        return AsyncYard(self)

    async def __aexit__(self, *_: object) -> None:
        """Jobs go on."""

    # -- submitting

    @overload
    def submit(self, asked: str | Sequence[Any] | Mapping[str, Any], /, **said: Unpack[JobFields]) -> Job: ...

    @overload
    def submit(
        self, asked: Callable[..., T], /, *arguments: Any, python: str = "", **said: Unpack[JobFields]
    ) -> FunctionJob[T]: ...

    def submit(self, asked: Any, /, *arguments: Any, python: str = "", **said: Unpack[JobFields]) -> Job:
        """A new job; it is in the journal when this returns. Raises UserError, and then nothing was submitted.

        Text is a line of bash, a list a program and its arguments, a mapping a native manifest; a function is called
        with the arguments (its keyword arguments need functools.partial). Keywords are the keys of a manifest.
        """
        if callable(asked):
            calls = calls_of(asked, [(arguments, {})], chunk=1, python=python)
            return submit_calls(self.client, asked, calls, said)
        if arguments or python:
            raise UserError("submit: only a function has arguments and a python; write those of a program in a list")
        spec = spec_from(asked, said, environ=self._environ)
        with refused_as_said(spec):
            return Job(self.client, self.client.submit(spec))

    def map(
        self,
        function: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        chunk: int = 1,
        python: str = "",
        **said: Unpack[JobFields],
    ) -> FunctionJob[T]:
        """One job that calls a function with each argument, or with one of each iterable, as the built-in `map`.

        Each task makes `chunk` calls. Raises UserError, and then nothing was submitted.
        """
        calls = calls_of(function, ((each, {}) for each in zip(*iterables, strict=False)), chunk=chunk, python=python)
        return submit_calls(self.client, function, calls, said)

    def function(
        self, *, python: str = "", **said: Unpack[JobFields]
    ) -> Callable[[Callable[P, T]], YardFunction[P, T]]:
        """A decorator: `f.submit(...)` and `f.map(...)` run it in the yard, and `f(...)` here."""
        return lambda function: YardFunction(lambda: self.client, function, python, said)

    # -- finding

    def job(self, selector: str | int) -> Job:
        """By id, number, name or `last`. One that calls a function has its results too. Raises NotFound."""
        view = self.client.job(str(selector))
        calls = calls_of_job(self.client, view)
        return Job(self.client, view) if calls is None else FunctionJob(self.client, view, calls, since=None)

    def jobs(self, *, all: bool = False, state: str | None = None, limit: int = JOBS_MOST) -> JobTable:
        """The newest first, as `yard ls`: those that have not ended or ended lately, or `all`."""
        return JobTable(self.client.jobs(all=all, state=state, limit=limit))

    def nodes(self) -> tuple[NodeView, ...]:
        return self.client.nodes()

    @property
    def _environ(self) -> Mapping[str, str]:
        """The variables of a shell go to no other machine."""
        return dict(os.environ) if self._address is None or self._address.is_local else {}

    def __repr__(self) -> str:
        return f"<Yard {self._address or self._directory or Path(settings.yard_dir(None))}>"


def _address(url: str, token: str) -> Address:
    try:
        return parse_address(url, token)
    except UserError as error:
        raise UserError(error.sentence, field=_ARGUMENTS[error.field]) from None
