"""Session: which server is there, what does it say, and do we need it when it is gone?"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
import traceback
from typing import Any, Callable, Dict, Optional

from jobyard.agent.attempts.outbox import Outbox
from jobyard.agent.attempts.workload import Workload
from jobyard.agent.requests import Requests
from jobyard.agent.respawn import Respawner
from jobyard.agent.sharing.reservations import Reservations
from jobyard.agent.system.connection import Connection
from jobyard.agent.system.loop import Loop
from jobyard.agent_protocol import messages

PROTOCOL = 1


class ServerSession:
    """One server at a time: who says hello takes the place of the one before."""

    def __init__(
        self,
        loop: Loop,
        requests: Requests,
        outbox: Outbox,
        workload: Workload,
        reservations: Reservations,
        about_us: Callable[[], Dict[str, Any]],
        log: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._requests = requests
        self._outbox = outbox
        self._workload = workload
        self._reservations = reservations
        self._about_us = about_us
        self._log = log
        self._respawner = Respawner(loop.timers, self._is_needed, log)
        self.server: Optional[Connection] = None
        self.lost_at = time.monotonic()
        self._is_quitting = False
        self._is_work_pending = False  # the server has work that we know nothing of

    def welcome(self, stream: socket.socket, peer: Any) -> None:
        """Somebody has connected: of this user, or root, or nobody."""
        uid = struct.unpack("3i", stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if uid not in (0, os.getuid()):
            stream.close()
            return
        connection: Connection
        connection = Connection(
            self._loop.selector, stream, lambda line: self._on_line(connection, line), lambda: self._lost(connection)
        )

    def _lost(self, connection: Connection) -> None:
        if connection is not self.server:
            return
        self.server = None
        self._outbox.close()
        self.lost_at = time.monotonic()
        self._log("connection lost; %d attempts here" % len(self._workload.attempts))
        self._respawner.begin()

    def _is_needed(self) -> bool:
        return self._is_work_pending or bool(self._workload.attempts) or self._outbox.has_undelivered

    def leave_if_done(self) -> None:
        """Leave if the server wants that and knows everything there is to know."""
        is_sent = self.server is None or self.server.is_flushed
        if self._is_quitting and not self._workload.attempts and self._outbox.has_delivered_all and is_sent:
            self._loop.leave()

    # Messages

    def _on_line(self, connection: Connection, line: bytes) -> None:
        """One bad message is refused, and is nobody else's matter."""
        message: Any = None
        try:
            message = json.loads(line)
            self._take(connection, message)
        except Exception as error:
            self._log(traceback.format_exc())
            what = "missing %s" % error if isinstance(error, KeyError) else str(error) or repr(error)
            said = "%s (in %s)" % (what, line[:120].decode("utf-8", "replace"))
            connection.send({"ev": "error", "message": said, "ids": self._requests.not_begun(message)})
        self._outbox.flush()

    def _take(self, connection: Connection, message: Dict[str, Any]) -> None:
        op = message["op"]
        if op == "hello":
            self._hello(connection, message)
        elif connection is not self.server:
            raise ValueError("say hello first")
        elif op == "pending":
            self._is_work_pending = bool(message["value"])
        elif op == "quit":
            self._is_quitting = True
            self.leave_if_done()
        else:
            self._requests.answer(connection, message)

    def _hello(self, connection: Connection, message: Dict[str, Any]) -> None:
        if message["protocol"] != PROTOCOL:
            raise ValueError("this agent speaks protocol %d, not %r" % (PROTOCOL, message["protocol"]))
        command = messages.strings(message.get("respawn") or [], "respawn")
        environment = messages.environment(message.get("respawn_env") or {}, "respawn_env")
        if self.server is not None and self.server is not connection:
            self._log("a new server replaces the old one")
            self.server.close()
        self._outbox.close()
        self.server = connection
        self._respawner.end()
        ships = self._requests.ships = bool(message.get("ship"))
        self._respawner.command = [] if ships else command  # it is a command of the server's own machine
        self._respawner.environment = {} if ships else environment
        self._reservations.yard = str(message.get("yard", ""))
        self._is_quitting = False
        self._is_work_pending = bool(message.get("pending"))
        connection.send({"ev": "welcome", "protocol": PROTOCOL, "pid": os.getpid(), **self._about_us()})
