"""Token check (authentication over TCP): has a request a token, and does it not come from a page in a browser?"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import urlsplit

from sqlalchemy import Engine
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jobyard.errors import Forbidden, NotAllowed, UserError, YardError
from jobyard.server.connection_table import ON_GOOD_TOKEN
from jobyard.server.failed_logins import WAITING_MOST, FailedLogins, is_worth_a_line
from jobyard.server.problems import problem_of
from jobyard.server.rights import CALLER, Caller
from jobyard.server.tokens import holder_of
from jobyard.wire.requests import API

log = logging.getLogger(__name__)

OPEN_PATH = f"{API}/healthz"
NEEDS_TOKEN = "this server needs a valid token: set YARD_TOKEN (`yard token create NAME` on its machine makes one)"
LOOKUPS_AT_ONCE = 2  # of tokens in the database, each less than a millisecond
SAFE = frozenset({"GET", "HEAD"})  # they change nothing, so they may be cut off in the middle


class Revocations:
    """Tells the readers of streams that their token was revoked."""

    def __init__(self) -> None:
        self.count = 0  # revoked so far: a lookup during which it grew is repeated
        self._waiting: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)

    def expect(self, token: str) -> asyncio.Future[None]:
        """Done when the token is revoked; cancel it when nobody waits any more."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[token].add(future)
        future.add_done_callback(lambda done: self._forget(token, done))
        return future

    def revoke(self, token: str) -> None:
        """After it was deleted."""
        self.count += 1
        for future in list(self._waiting.get(token, ())):
            if not future.done():
                future.set_result(None)

    def __len__(self) -> int:
        return len(self._waiting)

    def _forget(self, token: str, future: asyncio.Future[None]) -> None:
        self._waiting[token].discard(future)
        if not self._waiting[token]:
            del self._waiting[token]


class NeedsToken:
    """Wraps the app on TCP: every call needs `Authorization: Bearer TOKEN`, but for the health check."""

    def __init__(self, app: ASGIApp, engine: Engine, revocations: Revocations, refusal_seconds: float) -> None:
        self._app = app
        self._engine = engine
        self._revocations = revocations
        self._failed = FailedLogins(refusal_seconds)
        # Threads of its own: whatever else waits for a disk keeps nobody out.
        self._looking = ThreadPoolExecutor(LOOKUPS_AT_ONCE, "token")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == OPEN_PATH:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        kind, _, secret = headers.get("authorization", "").partition(" ")
        is_bearer = kind.lower() == "bearer"
        caller = await self._holder_of(secret.strip()) if is_bearer else None
        if caller is None:
            await self._keep_waiting(scope, is_bearer)
            await _refuse(Forbidden(NEEDS_TOKEN), scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state[CALLER] = caller
        if on_good_token := state.get(ON_GOOD_TOKEN):
            on_good_token()
        if why := refusal_of(scope["method"], headers):
            await _refuse(why, scope, receive, send)
        else:
            await self._serve(caller, scope, receive, send)

    async def _holder_of(self, secret: str) -> Caller | None:
        """The holder of a token that is valid when this returns: no revocation was missed until then."""
        loop = asyncio.get_running_loop()
        while True:
            count = self._revocations.count
            caller = await loop.run_in_executor(self._looking, holder_of, self._engine, secret)
            if count == self._revocations.count:
                return caller

    async def _keep_waiting(self, scope: Scope, has_token: bool) -> None:
        """Each wrong token makes its address wait longer; a missing token does not count as a guess."""
        if not has_token:
            return
        address = (scope.get("client") or ("unknown",))[0]
        count, seconds = self._failed.note(address, time.monotonic())
        if is_worth_a_line(count):
            log.warning("login refused from %s: no such token (failure %d of this address)", address, count)
        if seconds and self._failed.waiting < WAITING_MOST:
            self._failed.waiting += 1
            try:
                await asyncio.sleep(seconds)
            finally:
                self._failed.waiting -= 1

    async def _serve(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        """As the app does; but a read-only request ends when the token is revoked, also in the middle of a stream."""
        if scope["method"] not in SAFE:
            await self._app(scope, receive, send)
            return
        sent = _Sent(send)
        answering = asyncio.ensure_future(self._app(scope, receive, sent))
        revoked = self._revocations.expect(caller.token)
        try:
            await asyncio.wait({answering, revoked}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
                return
            await _cancelled(answering)
            await sent.end(scope, receive)
        finally:
            revoked.cancel()
            await _cancelled(answering)


async def _cancelled(task: asyncio.Future[None]) -> None:
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class _Sent:
    """What went out of an answer so far."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_begun = self._has_length = self._has_ended = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._has_begun = True
            self._has_length = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self._has_ended = not message.get("more_body", False)
        await self._send(message)

    async def end(self, scope: Scope, receive: Receive) -> None:
        """End a stream properly; the next request is told why. An answer of a known length is cut off."""
        if not self._has_begun:
            await _refuse(Forbidden(NEEDS_TOKEN), scope, receive, self._send)
        elif not self._has_ended and not self._has_length:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def refusal_of(method: str, headers: Headers) -> YardError | None:
    """Refuse what a page in a browser could send (CSRF), even with a token: curl and programs never send that."""
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != headers.get("host", ""):
        return NotAllowed(f"origin {origin[:200]!r}: pages of other sites may not use this server")
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return NotAllowed("pages of other sites may not use this server")
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method not in SAFE and has_body and kind != "application/json":
        return UserError(
            f"the body is {kind or 'of no kind'}; send JSON, and say so: Content-Type: application/json (curl --json)"
        )
    return None


async def _refuse(error: YardError, scope: Scope, receive: Receive, send: Send) -> None:
    answer = problem_of(error)
    if isinstance(error, Forbidden):
        answer.headers["WWW-Authenticate"] = "Bearer"
    await answer(scope, receive, send)
