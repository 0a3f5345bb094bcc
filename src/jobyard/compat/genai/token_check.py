"""Token check: who may call these endpoints? Holders of the token; without one, only this user's local programs."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import json
import os
import sys

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from jobyard.agent_protocol import local_connections

TOKEN = "JOBYARD_GENAI_TOKEN"
NEEDS_TOKEN = f"this service needs a token; send the header `Authorization: Bearer`, with the value of {TOKEN} there"
NO_BROWSERS = f"without {TOKEN} this service is for programs, not for pages in a browser"
# As a target they mean this machine; the original's own scripts use them.
ANY_ADDRESS = ("0.0.0.0", "::")
ONLY_LOOPBACK = f"without {TOKEN} only programs of this machine are served"
ONLY_OWNER = f"without {TOKEN} only programs of the user who started it are served"
BYTES_MOST = 8 << 20  # of a request; those of the original have some hundred
TOO_LARGE = f"the request is too large; at most {BYTES_MOST >> 20} MiB are accepted"
NO_LENGTH = "send the length of the request in the header `Content-Length`"


class TokenCheck:
    """ASGI middleware. It also protects an app that another program serves, as `fastapi run` does on all addresses."""

    def __init__(self, app: ASGIApp, token: str = "") -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not (refusal := self._refusal(scope)):
            await self._app(scope, receive, send)
            return
        status, sentence = refusal
        body = json.dumps({"error": sentence}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        return self._refused_who(scope, headers) or _refused_size(headers)

    def _refused_who(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        if self._token:
            secret = _secret(headers.get("authorization", ""))
            return None if hmac.compare_digest(secret, self._token) else (401, NEEDS_TOKEN)
        if "origin" in headers or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, NO_BROWSERS  # any web page could send a form to this machine (CSRF)
        client = scope.get("client") or ("",)
        # The Host header, too: a page could point its own name to this machine (DNS rebinding).
        host = _host(headers.get("host", ""))
        if not is_loopback(client[0]) or not (is_loopback(host) or host in ANY_ADDRESS):
            return 403, ONLY_LOOPBACK
        return None if _is_ours(scope) else (403, ONLY_OWNER)


def _is_ours(scope: Scope) -> bool:
    """Every user of this machine can connect to a port. Only Linux says which user it is."""
    if sys.platform != "linux":
        return True
    server: tuple[str, int] | None = scope.get("server")
    return server is not None and local_connections.uid_between(scope["client"], server) in (0, os.getuid())


def _refused_size(headers: Headers) -> tuple[int, str] | None:
    if "transfer-encoding" in headers:
        return 411, NO_LENGTH
    length = headers.get("content-length", "0")
    is_small = length.isdecimal() and len(length) < 10 and int(length) <= BYTES_MOST
    return None if is_small else (413, TOO_LARGE)


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _secret(authorization: str) -> bytes:
    """Also as a password: some clients can only be given a URL like `http://job:TOKEN@host/...`."""
    kind, _, value = authorization.partition(" ")
    if kind.lower() == "bearer":
        return value.strip().encode()
    if kind.lower() != "basic":
        return b""
    try:
        return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _host(text: str) -> str:
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]
