"""Bounds: how large may one request be, and how many streams may one caller have open?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jobyard.errors import TooLarge, TooMany, YardError
from jobyard.server.limits import Limits
from jobyard.server.problems import problem_of
from jobyard.server.rights import CALLER

STREAMS = ("/watch", "/logs", "/events")  # how the path of an answer ends that may go on for hours


class Bounded:
    """Wraps the app of one socket, inside the token check: without a token no stream is opened."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._streams: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check_length(Headers(scope=scope))
            with self._stream(scope):
                await self._app(scope, _Counted(receive, self._limits.body_bytes_most), send)
        except (TooLarge, TooMany) as error:
            # Raised here, before the app was called: the app answers its own errors itself.
            await _answer(error, scope, receive, send)

    def _check_length(self, headers: Headers) -> None:
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._limits.body_bytes_most:  # h11 has refused what is no number
            raise _too_large(self._limits.body_bytes_most)

    @contextmanager
    def _stream(self, scope: Scope) -> Iterator[None]:
        if scope["method"] != "GET" or not scope["path"].endswith(STREAMS):
            yield
            return
        caller = getattr(scope.get("state", {}).get(CALLER), "name", "")  # on the Unix socket there is only its owner
        most = self._limits.streams_most
        if self._streams[caller] >= most:
            raise TooMany(f"you have {most} streams of this yard open already; close some of them, or try again")
        self._streams[caller] += 1
        try:
            yield
        finally:
            self._streams[caller] -= 1
            if not self._streams[caller]:
                del self._streams[caller]


class _Counted:
    """A `receive` that ends a body which is longer than it may be; one without a length as well."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self._bytes = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._most:
            raise _too_large(self._most)
        return message


def _too_large(most: int) -> TooLarge:
    return TooLarge(
        f"the request has more than {most >> 20} MiB, which is all that is taken;"
        " split the job, or raise YARD_BODY_MIB_MOST of the server"
    )


async def _answer(error: YardError, scope: Scope, receive: Receive, send: Send) -> None:
    await problem_of(error)(scope, receive, send)
