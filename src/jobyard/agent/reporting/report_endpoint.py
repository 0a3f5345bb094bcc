"""Report endpoint: how do tasks report that speak HTTP? The original KubeProfiler, and Kubeflow's progress protocol.

It works on files only: a report becomes a line in the attempt's spool, and whether an attempt has to stop is told
by its stop file. A report that was answered survives the agent.
"""

from __future__ import annotations

import hmac
import os
import secrets
import selectors
import socket
import time
import traceback
from contextlib import suppress
from typing import Any, Callable, Dict, Optional, Set

from jobyard.agent.attempts.attempt import Attempt
from jobyard.agent.attempts.spools import Spools
from jobyard.agent.execution.task_environment import KUBEFLOW_PATH
from jobyard.agent.reporting import http_words
from jobyard.agent.reporting.http_words import Head, Refused, Request
from jobyard.agent.reporting.reports import Reports
from jobyard.agent.system.entrance import Entrance
from jobyard.agent.system.timers import Timers
from jobyard.agent_protocol import local_connections

_HOST = "127.0.0.1"
_MOST_CLIENTS = 64
_QUIET_SECONDS = 75.0
_CHUNK = 1 << 16


class ReportEndpoint:
    """A port of this machine, the same one after a restart where it is free. The agent works without it too."""

    def __init__(
        self, selector: selectors.BaseSelector, timers: Timers, state_dir: str, log: Callable[[str], None]
    ) -> None:
        self._selector = selector
        self._timers = timers
        self._log = log
        self._state_dir = state_dir
        self._clients: Set["Client"] = set()
        self._reports: Optional[Reports] = None
        self._is_watching = False
        self._token = ""
        self.token_file = state_dir + "/door.token"
        self.address = ""
        try:
            self._listener = self._listen(state_dir + "/door.port")
        except OSError as error:
            log("tasks cannot report over HTTP: %s" % error)
            return
        self.address = "%s:%d" % (_HOST, self._listener.getsockname()[1])

    def _listen(self, memory: str) -> socket.socket:
        known = _port_in(memory)
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((_HOST, known))
            except OSError:
                if not known:
                    raise
                listener.bind((_HOST, 0))
            listener.listen(128)
            port = listener.getsockname()[1]
            # A new port needs a new token: tasks may have sent the old one to whatever listens on the old port.
            self._token = _secret(self.token_file, is_new=port != known)
            if port != known:
                _write(memory, "%d\n" % port)
        except OSError:
            listener.close()
            raise
        return listener

    def open(self, attempts: Dict[str, Attempt], spools: Spools) -> None:
        """Serve the reports of these attempts from now on."""
        self._reports = Reports(attempts, spools, self._state_dir)
        if self.address:
            Entrance(self._selector, self._timers, self._listener, self._welcome)

    def _welcome(self, stream: socket.socket, peer: Any) -> None:
        if local_connections.uid_of(stream) not in (0, os.getuid()):  # any user of this machine can connect to a port
            stream.close()
            return
        if len(self._clients) >= _MOST_CLIENTS:
            min(self._clients, key=lambda client: client.last_heard).close()
        self._clients.add(Client(self._selector, stream, self._answer, self._clients.discard))
        if not self._is_watching:
            self._is_watching = True
            self._timers.after(_QUIET_SECONDS, self._close_quiet)

    def _close_quiet(self) -> None:
        long_ago = time.monotonic() - _QUIET_SECONDS
        for client in [client for client in self._clients if client.last_heard < long_ago]:
            client.close()
        self._is_watching = bool(self._clients)
        if self._is_watching:
            self._timers.after(_QUIET_SECONDS, self._close_quiet)

    def _answer(self, request: Request, stream: socket.socket) -> bytes:
        try:
            return http_words.answer(200, self._serve(request, stream), request.keeps_open)
        except Refused as refused:
            return http_words.answer(refused.status, "%s\n" % refused, request.keeps_open)
        except Exception:  # a bug here must not end the loop
            self._log("a request for %s failed: %s" % (request.path[:200], traceback.format_exc()))
            return http_words.answer(500, "the agent could not answer; its log says why\n", request.keeps_open)

    def _serve(self, request: Request, stream: socket.socket) -> str:
        assert self._reports is not None
        if "origin" in request.headers:
            raise Refused(403, "this address is for tasks, not for browsers")
        if request.path.startswith(KUBEFLOW_PATH):
            shown = request.headers.get("authorization", "")
            if not hmac.compare_digest(shown.encode(), b"Bearer " + self._token.encode()):
                raise Refused(401, "show the token that lies in KUBEFLOW_TRAINER_SERVER_TOKEN")
        return self._reports.serve(request, stream)


class Client:
    """One connection: requests in, answers out, in order."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        stream: socket.socket,
        serve: Callable[[Request, socket.socket], bytes],
        on_close: Callable[["Client"], None],
    ) -> None:
        self._selector = selector
        self._stream = stream
        self._serve = serve
        self._on_close = on_close
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._is_closing = False
        self._head: Optional[Head] = None  # of the request whose body has not all come
        self._events = selectors.EVENT_READ
        self._is_open = True
        self.last_heard = time.monotonic()
        stream.setblocking(False)
        with suppress(OSError):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(stream, self._events, self._ready)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._selector.unregister(self._stream)
            self._stream.close()
            self._on_close(self)

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_READ and not self._read():
            self.close()
            return
        while self._answer():
            pass

    def _answer(self) -> bool:
        """Answer what was received. True: the client has read something, so there may be more to answer."""
        while not self._is_closing and self._take():
            pass
        was_full = self._is_full
        self._write()
        return self._is_open and was_full and not self._is_full

    @property
    def _is_full(self) -> bool:
        """So many answers wait to be sent that no more requests are read."""
        return len(self._outgoing) > _CHUNK

    def _read(self) -> bool:
        """Take in what has come; False when the other side is gone."""
        try:
            data = self._stream.recv(_CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not self._is_closing:  # after that, requests are not read any more
            self._incoming += data
        self.last_heard = time.monotonic()
        return bool(data)

    def _take(self) -> bool:
        """Answer the next request if it is all there."""
        if not self._incoming or self._is_full:
            return False
        try:
            head, request = http_words.take(self._incoming, self._head)
        except Refused as refused:
            self._outgoing += http_words.answer(refused.status, "%s\n" % refused, False)
            self._is_closing = True
            return False
        if request is None:
            if head is not None and head.expects_continue and self._head is None:
                self._outgoing += http_words.CONTINUE
            self._head = head
            return False
        self._head = None
        self._outgoing += self._serve(request, self._stream)
        self._is_closing = not request.keeps_open
        return True

    def _write(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._stream.send(self._outgoing)]
                self.last_heard = time.monotonic()
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if self._is_closing and not self._outgoing:
            # Not close(): with unread bytes it resets the connection, and the client loses the answer.
            with suppress(OSError):
                self._stream.shutdown(socket.SHUT_WR)
        wanted = selectors.EVENT_WRITE if self._outgoing else 0
        if not self._is_full:
            wanted |= selectors.EVENT_READ
        if wanted != self._events:
            self._events = wanted
            self._selector.modify(self._stream, wanted, self._ready)


def _port_in(path: str) -> int:
    try:
        with open(path) as file:
            port = int(file.read(16))
    except (OSError, ValueError):
        return 0
    return port if 1024 <= port < 65536 else 0


def _secret(path: str, is_new: bool) -> str:
    """What the owner of these files can read, and nobody else."""
    if not is_new:
        with suppress(OSError), open(path) as file:
            known = file.read().strip()
            if known:
                return known
    secret = secrets.token_urlsafe(32)
    _write(path, secret + "\n")
    return secret


def _write(path: str, text: str) -> None:
    draft = path + ".tmp"
    with suppress(FileNotFoundError):
        os.unlink(draft)
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)
    os.replace(draft, path)
