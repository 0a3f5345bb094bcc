"""HTTP transport: how does one request reach the server, and how does its answer or its error come back?"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any

from jobyard.client.address import Address
from jobyard.errors import BY_CODE, Unreachable, UserError, YardError

CHUNK_BYTES = 1 << 16
GATEWAY_STATUSES = frozenset({502, 503, 504})  # a proxy answered, but no working yard


class NotSent(Unreachable):
    """Nobody listens there: the request was never read, so repeating it is safe whatever it asks.

    It has the code of its parent: it never crosses the wire.
    """


class Lost(Unreachable):
    """The link broke after the request had gone out: the server may or may not have acted on it."""


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Answer:
    """A good answer whose body comes as it is read. What breaks on the way is Lost."""

    def __init__(self, connection: HTTPConnection, response: HTTPResponse, address: Address) -> None:
        self._connection = connection
        self._response = response
        self._address = address
        self._bytes_left = response.length  # None: in chunks, which have an end of their own

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def headers(self) -> Mapping[str, str]:
        return dict(self._response.getheaders())

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def read(self) -> bytes:
        with _link_errors(self._address):
            return self._response.read()

    def read_some(self) -> bytes:
        """What is there, as soon as something is; nothing at an end in good order.

        Not readline: it takes the death of the server inside a chunked answer for the end, where read1 raises.
        """
        if self._bytes_left == 0:
            return b""
        with _link_errors(self._address):
            piece = self._response.read1(CHUNK_BYTES)
            if self._bytes_left is not None:
                self._bytes_left -= len(piece)
                if not piece:
                    raise HTTPException(f"{self._bytes_left} bytes of the answer are missing")
            return piece


class HttpTransport:
    """One connection for each request: cheap on a Unix socket, and safe to use from several threads."""

    def __init__(self, address: Address) -> None:
        self.address = address

    def call(self, method: str, path: str, body: Any = None, *, seconds: float) -> Any:
        """The JSON that is answered, if any. Raises the error class that the server raised, NotSent or Lost."""
        with self.open(method, path, body, seconds=seconds) as answer:
            return self._decoded(answer.read())

    def page(self, path: str, *, seconds: float) -> tuple[Any, Mapping[str, str]]:
        """As `call`, with the headers of the answer."""
        with self.open("GET", path, seconds=seconds) as answer:
            return self._decoded(answer.read()), answer.headers

    def _decoded(self, content: bytes) -> Any:
        if not content:
            return None
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise YardError(f"{self.address} answered no JSON; check that a yard listens there") from error

    def open(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, seconds: float
    ) -> Answer:
        """A good answer that is not read yet. `seconds` bounds each wait for the server. Raises as `call` does."""
        data = None if body is None else json.dumps(body).encode()
        connection = self._connection(seconds)
        try:
            self._connect(connection)
            with _link_errors(self.address):
                connection.request(method, self.address.prefix + path, data, self._headers(data, headers))
                response = connection.getresponse()
                if response.status >= 400:
                    raise _problem(response.status, response.read(), self.address)
        except BaseException:
            connection.close()
            raise
        return Answer(connection, response, self.address)

    def _connect(self, connection: HTTPConnection) -> None:
        try:
            connection.connect()
        except OSError as error:
            raise NotSent(f"no yard answers at {self.address} ({_why(error)}); {self._way_out()}") from error

    def _connection(self, seconds: float) -> HTTPConnection:
        where = self.address
        if where.socket:
            return _UnixConnection(where.socket, seconds)
        kind = HTTPSConnection if where.tls else HTTPConnection
        return kind(where.host, where.port, timeout=seconds)

    def _headers(self, data: bytes | None, extra: Mapping[str, str] | None) -> dict[str, str]:
        headers = {"Accept": "application/json, text/event-stream", **(extra or {})}
        if data is not None:
            headers["Content-Type"] = "application/json"
        if self.address.token:
            headers["Authorization"] = f"Bearer {self.address.token}"
        return headers

    def _way_out(self) -> str:
        if self.address.is_local:
            return "start it with `yard server start`"
        return "check YARD_URL, and that `yard serve` runs there"


@contextmanager
def _link_errors(address: Address) -> Iterator[None]:
    try:
        yield
    except (OSError, HTTPException) as error:
        raise Lost(
            f"the link to the yard at {address} broke ({_why(error)}); try again or see `yard doctor`"
        ) from error


def _problem(status: int, content: bytes, address: Address) -> YardError:
    """The error that the server raised; for an answer that is not from a yard, an error that says so."""
    try:
        data = json.loads(content)
        title, code, field = str(data["title"]), str(data["code"]), str(data.get("field", ""))
    except (ValueError, KeyError, TypeError, RecursionError):
        shown = f"{address} answered HTTP {status}, not as a yard does; check YARD_URL or see `yard server logs`"
        if status in GATEWAY_STATUSES:
            return Unreachable(shown)
        return (UserError if status < 500 else YardError)(shown)
    kind = BY_CODE.get(code, UserError if status < 500 else YardError)
    return kind(title.removeprefix(f"{field}: "), field=field) if issubclass(kind, UserError) else kind(title)


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
