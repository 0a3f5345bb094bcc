"""What can somebody do who took over a machine's agent? Nothing to the server, and nothing to other machines' jobs."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobyard.agent.build import agent_zipapp
from tests.waiting import until
from tests.yards import TemporaryYard

WELCOME = {"ev": "welcome", "protocol": 1, "pid": 7, "boot_id": "b", "cpu_millis": 4000, "memory_mib": 1000}
FOREIGN = {"cpu_millis": 0, "memory_mib": 0, "device_mib": {}}
MEASURED = {"ev": "measured", "devices": [], "load": 0.5, "foreign": FOREIGN}
LIES: tuple[dict[str, Any], ...] = (
    {"ev": "dance"},
    {"ev": "attempts", "finished": [["nobody.0.1", {"started_at": 1, "finished_at": 2, "exit_code": 0}]]},
    {"ev": "attempts", "started": [["../../../../etc/x.0.1", 1], 3, [], [None, None]]},
    {"ev": "attempts", "finished": "all"},
    {"ev": "progress", "attempts": {"nobody.0.1": {"metrics": {"loss": float("nan")}}}},
    {"ev": "measured", "foreign": {"memory_mib": float("inf")}},
    {"ev": "output", "id": "../../x.0.1", "stream": "out", "offset": 0, "data": "YWI="},
    {"ev": "reconciled", "absent": ["x", 3, None, "nobody.0.1"]},
    {"ev": "missing", "snapshot": ["../../x"]},
)


class Liar:
    """Listens where the yard's agent would, and answers each launch with lies, an impossible end, and the true one."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self.launched: list[str] = []
        self.links = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            self.links += 1
            with stream, stream.makefile("rb") as lines:
                for line in lines:
                    for said in self._answers(json.loads(line)):
                        stream.sendall(json.dumps(said).encode() + b"\n")

    def _answers(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        match message["op"]:
            case "hello":
                yield {**WELCOME, "build": agent_zipapp()[1], "now": time.time(), "devices": []}
            case "probe":
                yield MEASURED
            case "reconcile":
                yield {"ev": "reconciled", "absent": message["live"]}
            case "launch":
                name = message["items"][0]["id"]
                self.launched.append(name)
                yield from LIES
                times = {"started_at": time.time(), "finished_at": time.time()}
                for code in ("x", 0):
                    yield {"ev": "attempts", "finished": [[name, {**times, "exit_code": code}]]}


@pytest.fixture
def agent_socket(own_yard: TemporaryYard) -> Path:
    """Where the server looks for its agent; nobody listens there."""
    own_yard.ok("run", "--", "true")
    (path,) = own_yard.runtime.rglob("*.agent")
    own_yard.ok("server", "stop")
    until(lambda: not path.exists())
    return path


def test_a_lying_agent_hurts_nobody_and_is_named(own_yard: TemporaryYard, agent_socket: Path) -> None:
    liar = Liar(agent_socket)
    try:
        own_yard.ok("run", "--", "true")
        own_yard.ok("run", "--", "true")
        assert len(liar.launched) == 2
        assert liar.links == 1  # none of it was worth another connection
        assert re.search(r"its agent said \d\d times what cannot be", own_yard.ok("nodes").out)
        assert "Traceback" not in own_yard.server_log()
    finally:
        liar.close()
