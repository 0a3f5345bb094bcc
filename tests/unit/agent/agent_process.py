"""A real agent process and the server's side of its socket, for tests."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE_SECONDS

from jobyard.agent.system import processes
from jobyard.agent_protocol import records

SOURCE = Path(__file__).resolve().parents[3] / "src"


class Client:
    """The server's end of a connection. Remembers every message that came."""

    def __init__(
        self,
        path: Path,
        *,
        hello: bool = True,
        respawn: Sequence[str] = (),
        respawn_env: dict[str, str] | None = None,
        ship: bool = False,
    ) -> None:
        self.stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.stream.settimeout(PATIENCE_SECONDS)
        try:
            self.stream.connect(str(path))
        except OSError:
            self.stream.close()
            raise
        self.messages: list[dict[str, Any]] = []
        self._partial = b""
        if hello:
            more = {**({"ship": True} if ship else {}), **({"respawn_env": respawn_env} if respawn_env else {})}
            self.send(op="hello", protocol=1, yard="test", respawn=list(respawn), **more)
            self.welcome = self.wait(lambda m: m["ev"] == "welcome")

    def send(self, **message: Any) -> None:
        self.stream.sendall(json.dumps(message).encode() + b"\n")

    def read(self) -> None:
        """Take in what comes next; raises ConnectionError at the end of the stream."""
        data = self.stream.recv(1 << 20)
        if not data:
            raise ConnectionError("the agent closed the connection")
        *lines, self._partial = (self._partial + data).split(b"\n")
        self.messages += [json.loads(line) for line in lines]

    def wait(self, found: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """The first message that this holds for, among those that came and those that come."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        seen = 0
        while True:
            for message in self.messages[seen:]:
                if found(message):
                    return message
            seen = len(self.messages)
            assert time.monotonic() < deadline, self.messages[-5:]
            self.read()

    def launch(self, slot: str, *items: dict[str, Any], job: str = "j", **reserve: Any) -> None:
        self.send(op="launch", job=job, slot=slot, reserve=reserve, items=list(items))

    def run(self, *items: dict[str, Any], slot: str = "s") -> list[dict[str, Any]]:
        """Run items in a slot, and how they ended."""
        self.launch(slot, *items)
        return [self.finished(item["id"]) for item in items]

    def finished(self, attempt: str) -> dict[str, Any]:
        """How an attempt ended; waits for it."""
        message = self.wait(lambda m: any(name == attempt for name, _ in m.get("finished", ())))
        return dict(message["finished"])[attempt]  # type: ignore[no-any-return]

    def started(self, attempt: str) -> float:
        message = self.wait(lambda m: any(name == attempt for name, _ in m.get("started", ())))
        return dict(message["started"])[attempt]  # type: ignore[no-any-return]

    def progress(self, attempt: str, found: Callable[[dict[str, Any]], Any] = bool) -> dict[str, Any]:
        """The first progress of an attempt that this holds for; waits for it."""
        message = self.wait(lambda m: m["ev"] == "progress" and found(m["attempts"].get(attempt, {})))
        return message["attempts"][attempt]  # type: ignore[no-any-return]

    def withdrawn(self, attempt: str) -> None:
        self.wait(lambda m: attempt in m.get("withdrawn", ()))

    def shipped(self, attempt: str, stream: str, before: bytes = b"") -> bytes:
        """What has come of a stream, after what we had before; without gap or repetition, or it is an error."""
        content = bytearray(before)
        for message in self.messages:
            if (message["ev"], message.get("id"), message.get("stream")) == ("output", attempt, stream):
                assert message["offset"] == len(content)
                content += base64.b64decode(message["data"])
        return bytes(content)

    def everything_finished(self) -> list[str]:
        return [name for message in self.messages for name, _ in message.get("finished", ())]

    def reconcile(self, *live: str) -> list[str]:
        """What is absent; the answer may come in several lines."""
        before = len(self.messages)
        self.send(op="reconcile", live=list(live))
        answer: list[dict[str, Any]] = []
        while not answer or answer[-1].get("more"):
            self.read()
            answer = [message for message in self.messages[before:] if message["ev"] == "reconciled"]
        return [attempt for piece in answer for attempt in piece["absent"]]

    def measured(self) -> dict[str, Any]:
        before = len(self.messages)
        self.send(op="probe")
        while not any(m["ev"] == "measured" for m in self.messages[before:]):
            self.read()
        return [m for m in self.messages if m["ev"] == "measured"][-1]

    def stored(self) -> tuple[list[str], list[str]]:
        """The jobs and the snapshots that it says are there."""
        before = len(self.messages)
        self.send(op="stored")
        answer = self.wait(lambda m: m["ev"] == "stored" and m in self.messages[before:])
        return answer["jobs"], answer["snapshots"]

    def close(self) -> None:
        self.stream.close()


class AgentProcess:
    """An agent on its own directories; `stop_everything` leaves no process behind."""

    def __init__(self, directory: Path, python: str = sys.executable, **env: str) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.socket = directory / "run" / "agent.sock"
        self.work = directory / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self._python = python
        self._env = {**os.environ, "PYTHONPATH": str(SOURCE), **env}
        self._env.setdefault("JOBYARD_FAKE_GPU_DIR", str(directory / "fake-gpus"))
        self._clients: list[Client] = []
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> AgentProcess:
        """Start the agent and wait until it listens."""
        command = [self._python, "-m", "jobyard.agent.main", "--state", str(self.state), "--socket", str(self.socket)]
        self.process = subprocess.Popen([*command, *options], env=self._env, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                Client(self.socket, hello=False).close()
                return self
            except OSError:
                assert self.process.poll() is None, "the agent did not begin"
                assert time.monotonic() < deadline
                time.sleep(0.01)

    def connect(self, *live: str, have: dict[str, dict[str, int]] | None = None, **options: Any) -> Client:
        """A server that has said hello, reconciled, and described job `j`."""
        client = Client(self.socket, **options)
        self._clients.append(client)
        client.send(op="reconcile", live=list(live), **({"have": have} if have else {}))
        client.wait(lambda m: m["ev"] == "reconciled")
        client.send(op="job", job="j", env={"FROM_JOB": "yes"}, workdir=str(self.work))
        return client

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def files(self, attempt: str) -> records.Paths:
        return records.paths(str(self.state), attempt)

    def output(self, attempt: str) -> str:
        return Path(self.files(attempt).out).read_text()

    def is_ready(self, attempt: str) -> bool:
        """Has it said so?"""
        return os.path.exists(self.files(attempt).out) and "ready\n" in self.output(attempt)

    def errors(self, attempt: str) -> str:
        return Path(self.files(attempt).err).read_text()

    def record(self, attempt: str) -> records.Record:
        record = records.read(self.files(attempt).record)
        assert record is not None
        return record

    def claim(self, attempt: str) -> records.Claim:
        claim = self.record(attempt).claim
        assert claim is not None
        return claim

    def start_of(self, attempt: str) -> records.Start:
        start = self.record(attempt).start
        assert start is not None
        return start

    def has_ended(self, attempt: str) -> bool:
        return self.record(attempt).ending is not None

    def ending(self, attempt: str) -> records.Ending:
        ending = self.record(attempt).ending
        assert ending is not None
        return ending

    def stop_everything(self) -> None:
        for client in self._clients:
            client.close()
        if self.process is not None:
            self.kill()
        marker = (str(self.state) + "/").encode()
        for process in processes.scan():
            mine = process.pid == os.getpid()
            if not mine and (_mentions(process.pid, "environ", marker) or _is_lane_of(process.pid, str(self.state))):
                processes.send(process.pid, signal.SIGKILL)


def _mentions(pid: int, file: str, marker: bytes) -> bool:
    try:
        return marker in Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return False


def _is_lane_of(pid: int, state: str) -> bool:
    """A lane has its agent's command line."""
    return _mentions(pid, "cmdline", state.encode() + b"\0")
