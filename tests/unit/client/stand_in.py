"""A stand-in for the server: answers on a Unix socket what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from jobyard.model import codec
from jobyard.wire.requests import API


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Said:
    """An answer. `events` makes it a stream; `dies` cuts the link in the middle, as `kill -9` does.

    Of bytes it cuts the last one off.
    """

    status: int = 200
    data: Any = None
    events: Iterable[tuple[str, str, Any]] | None = None  # (event, id, data)
    dies: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[Asked], Said]


@dataclass
class StandIn:
    """Answers by `METHOD /path` below /api/v1; what it does not know is the server's 404."""

    socket_path: Path
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def on(self, call: str, *said: Said | Answer) -> None:
        """The answers to a call, one after another; the last one stays."""
        left = list(said)

        def next_answer(asked: Asked) -> Said:
            answer = left.pop(0) if len(left) > 1 else left[0]
            return answer if isinstance(answer, Said) else answer(asked)

        self.answers[call] = next_answer

    def calls(self, call: str) -> list[Asked]:
        return [asked for asked in self.asked if f"{asked.method} {asked.path}" == call]


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    stand_in: StandIn

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.close_connection = True
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        asked = Asked(self.command, parts.path.removeprefix(API), query, dict(self.headers), body)
        stand_in = self.server.stand_in
        stand_in.asked.append(asked)
        answer = stand_in.answers.get(f"{asked.method} {asked.path}")
        said = answer(asked) if answer else problem(404, "not_found", f"nothing at {asked.path}")
        if said.events is not None:
            self._stream(said)
        elif said.dies and not isinstance(said.data, bytes):
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._document(said)

    def _document(self, said: Said) -> None:
        is_bytes = isinstance(said.data, bytes)
        content = said.data if is_bytes else json.dumps(codec.encode(said.data, defaults=True)).encode()
        self.send_response(said.status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in said.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[:-1] if said.dies else content)

    def _stream(self, said: Said) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._chunk(b": hello\n\n")
        for name, event_id, data in said.events or ():
            text = json.dumps(codec.encode(data, defaults=True))
            self._chunk(f"event: {name}\nid: {event_id}\ndata: {text}\n\n".encode())
        if said.dies:
            self._chunk(b"event: job\ndata: {half an ev")
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def problem(status: int, code: str, title: str, field: str = "") -> Said:
    return Said(status, {"code": code, "title": title, "status": status, "field": field})


@contextmanager
def standing_in(socket_path: Path) -> Iterator[StandIn]:
    """A stand-in that listens; afterwards its socket is gone."""
    stand_in = StandIn(socket_path)
    with _Server(str(socket_path), _Handler) as server:
        server.stand_in = stand_in
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield stand_in
        finally:
            server.shutdown()
            thread.join()
            socket_path.unlink(missing_ok=True)
