"""A team server: `yard serve --listen` as a process, its tokens, and plain HTTP to its TCP port and its socket."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import listens, until
from tests.yards import TemporaryYard

API = "/api/v1"
SECONDS = 30.0


@dataclass(frozen=True)
class Said:
    """How a request was answered."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def sentence(self) -> str:
        """Of a problem."""
        title: str = self.json["title"]
        return title


class TeamServer:
    """A served yard and ways to talk to it. `tokens` are the secrets by the name of their holder."""

    def __init__(self, served: TemporaryYard, port: int, process: subprocess.Popen[bytes]) -> None:
        self.served = served
        self.port = port
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.tokens: dict[str, str] = {}
        self.log = ""  # what the server has said so far
        self._reading = threading.Thread(target=self._read_log, daemon=True)
        self._reading.start()

    def _read_log(self) -> None:
        """A pipe that nobody reads would hold the server up."""
        assert self.process.stderr is not None
        while piece := self.process.stderr.read1(65536):  # type: ignore[attr-defined]
            self.log += piece.decode(errors="replace")

    def stop(self) -> None:
        """End it in good order."""
        self.process.terminate()
        code = self.process.wait(SECONDS)
        self._reading.join(SECONDS)
        assert code == 0, self.log
        assert "Traceback" not in self.log, self.log

    def token(self, holder: str, *words: str) -> str:
        """The secret of this holder's token, which the yard's owner makes at the first call."""
        if holder not in self.tokens:
            self.tokens[holder] = self.served.json("token", "create", holder, *words)["secret"]
        return self.tokens[holder]

    def env(self, holder: str, *words: str) -> dict[str, str]:
        """For a command line that is elsewhere: another yard directory, the address and a token."""
        elsewhere = str(self.served.root / "elsewhere")
        return {"YARD_URL": self.url, "YARD_TOKEN": self.token(holder, *words), "YARD_DIR": elsewhere}

    def ask(
        self, method: str, path: str, body: Any = None, *, token: str = "", headers: dict[str, str] | None = None
    ) -> Said:
        """One request over TCP. A `body` that is not bytes is sent as JSON; a `path` without `/` is one of the API."""
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        return _asked(connection, method, path, body, {**sent, **(headers or {})})

    def ask_socket(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Said:
        """One request over the Unix socket, as the yard's owner."""
        return asked_on_socket(self.served.socket, method, path, body, headers)

    def connect(self) -> socket.socket:
        """A bare TCP connection, for bytes that no HTTP library would send."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def is_alive(self) -> bool:
        return self.process.poll() is None and self.ask("GET", "healthz").status == 200

    @contextmanager
    def stream(self, path: str, token: str) -> Iterator[http.client.HTTPResponse]:
        """An answer that goes on, like that of `events`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request("GET", f"{API}/{path}", headers={"Authorization": f"Bearer {token}"})
            yield connection.getresponse()
        finally:
            connection.close()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(SECONDS)
        self.sock.connect(str(self._path))


def asked_on_socket(
    path_of_socket: Path, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> Said:
    """One request over a yard's Unix socket, as its owner."""
    return _asked(UnixConnection(path_of_socket), method, path, body, headers or {})


def _asked(connection: http.client.HTTPConnection, method: str, path: str, body: Any, headers: dict[str, str]) -> Said:
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    if data is not None and not isinstance(body, bytes):
        headers = {"Content-Type": "application/json", **headers}
    try:
        connection.request(method, path if path.startswith("/") else f"{API}/{path}", data, headers)
        answer = connection.getresponse()
        return Said(answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()})
    finally:
        connection.close()


@contextmanager
def team_server(served: TemporaryYard, *words: str) -> Iterator[TeamServer]:
    """`yard serve --listen` on a free port, until it ends in good order; `words` are further options of it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with served.start("serve", "--listen", f"127.0.0.1:{port}", *words) as process:
        team = TeamServer(served, port, process)
        try:
            until(lambda: _listens(team))
            yield team
        finally:
            team.stop()


def _listens(team: TeamServer) -> bool:
    assert team.process.poll() is None, f"the server ended: {team.log}"
    return listens(team.port)
