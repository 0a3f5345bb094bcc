"""A yard of its own for one test: real processes through the real command line, and a certain end to all of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.waiting import LONG_PATIENCE_SECONDS, PATIENCE_SECONDS, long_until, pause

import jobyard
from jobyard.agent.system import processes
from jobyard.agent.system.processes import Process
from jobyard.client.address import Address
from jobyard.client.api import YardClient
from jobyard.errors import YardError
from jobyard.settings import ClientKnobs, yard_key
from jobyard.wire.views import JobView, ServerView, TaskView

SOURCE = Path(jobyard.__file__).resolve().parents[1]
IDLE_SECONDS = 10


class LiveYard:
    """Directories, an environment, and whatever processes come to live there. `remove` ends and removes them all."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or Path(tempfile.mkdtemp(prefix="jy-", dir="/tmp"))  # sockets want short paths
        self.directory = self.root / "yard"
        self.faults = self.root / "faults"
        self.work = self.root / "work"
        self.directory.mkdir(mode=0o700)
        for path in (self.root / "run", self.faults, self.work):
            path.mkdir()
        (self.root / "run").chmod(0o700)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("YARD_", "JOBYARD_"))}
        self.env = {
            **clean,
            "PYTHONPATH": str(SOURCE),
            "YARD_DIR": str(self.directory),
            "XDG_RUNTIME_DIR": str(self.root / "run"),
            "XDG_STATE_HOME": str(self.root / "state"),
            "JOBYARD_RESERVATIONS_DIR": str(self.root / "reservations"),
            "JOBYARD_FAULTS": str(self.faults),
            "YARD_IDLE_SECONDS": str(IDLE_SECONDS),
            "YARD_START_SECONDS": str(LONG_PATIENCE_SECONDS),  # a busy machine takes a while
            "NO_COLOR": "1",
            "PYTHONFAULTHANDLER": "1",
        }
        socket = self.root / "run" / "jobyard" / f"{yard_key(self.directory)}.sock"
        # Looks at what is there now: it neither starts a server nor waits for one.
        self.client = YardClient(Address(socket=str(socket)), ClientKnobs(reconnect_seconds=0.0, request_seconds=20.0))
        # YARD_DIR would do for the CLI and the server alone: an agent has little of their environment.
        self._marker = f"\0XDG_RUNTIME_DIR={self.root / 'run'}\0".encode()
        self._children: list[subprocess.Popen[bytes]] = []

    # -- the command line

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """`yard WORDS...` as a child that goes on; its output is read with `ended`."""
        child = subprocess.Popen(
            [sys.executable, "-m", "jobyard.cli.main", *words],
            env=self.env,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._children.append(child)
        return child

    def ended(self, child: subprocess.Popen[bytes]) -> subprocess.CompletedProcess[str]:
        out, err = child.communicate(timeout=LONG_PATIENCE_SECONDS)
        return subprocess.CompletedProcess(child.args, child.returncode, out.decode(), err.decode())

    def yard(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.ended(self.start(*words))

    def submit(self, *words: str) -> str:
        """The id of the new job: acknowledged."""
        done = self.yard("submit", "-o", "json", *words)
        assert done.returncode == 0, done
        return str(json.loads(done.stdout)["id"])

    def wait(self, job: str) -> JobView:
        """The job at its end."""
        done = self.yard("wait", "--timeout", "230s", job)
        assert done.returncode in (0, 1), done
        return self.client.job(job)

    # -- what is there

    def server(self) -> ServerView | None:
        """The server that answers now."""
        try:
            return self.client.server()
        except YardError:
            return None

    def with_agent(self) -> ServerView:
        """The server once its agent is connected. Starts nothing: somebody else must."""
        view = long_until(lambda: (now := self.server()) and now.agents and now.agents[0].pid and now)
        assert view
        return view

    @property
    def server_pid(self) -> int:
        return self.with_agent().pid

    @property
    def agent_pid(self) -> int:
        pid = self.with_agent().agents[0].pid
        assert pid
        return pid

    def tasks(self, job: str) -> dict[str, TaskView]:
        return {task.label: task for task in self.client.tasks(job, limit=1000)}

    def raw(self, job: str, label: str, stream: str) -> bytes:
        return b"".join(self.client.raw_log(job, task=label, stream=stream))

    def processes(self) -> list[Process]:
        """Everything that was started with this yard's environment: CLI, server, agent, lanes, tasks."""
        return [found for found in processes.scan() if self._is_ours(found.pid)]

    def _is_ours(self, pid: int) -> bool:
        try:
            return self._marker in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    # -- faults

    def kill(self, pid: int) -> bool:
        """kill -9, and wait until it is gone. False: it was gone already. Only ever a process of this yard."""
        began = processes.start_time(pid)
        if not self._is_ours(pid):
            return False
        processes.send(pid, signal.SIGKILL)
        long_until(lambda: not processes.is_alive(pid, began))
        return True

    def arm(self, point: str) -> None:
        """Whoever reaches this point next dies there."""
        (self.faults / point).touch()

    def is_armed(self, point: str) -> bool:
        return (self.faults / point).exists()

    def await_death_at(self, point: str) -> None:
        long_until(lambda: not self.is_armed(point))

    # -- the end

    def stop(self) -> list[Process]:
        """End server and agent in good order, as often as a late starter brings them back; the rest is left over."""
        began = time.monotonic()
        while (left := self.processes()) and time.monotonic() < began + PATIENCE_SECONDS:
            if server := self.server():
                with suppress(YardError):  # gone in between
                    self.client.stop_server(force=True)
                self._await_end_of(server.pid)
            # Only now: a server would start the next agent.
            for process in left:
                if process.pid == self._noted_agent():
                    processes.send(process.pid, signal.SIGTERM)
            pause(began)
        return left

    def _await_end_of(self, server: int) -> None:
        began = processes.start_time(server)
        try:
            long_until(lambda: not processes.is_alive(server, began))
        except AssertionError:
            processes.send(server, signal.SIGABRT)  # its log then tells where it hangs
            long_until(lambda: not processes.is_alive(server, began))
            raise

    def _noted_agent(self) -> int:
        try:
            return int((self.directory / "agent" / "agent.pid").read_text())
        except (OSError, ValueError):
            return 0

    def remove(self) -> None:
        """However the test ended: no process and no file stays."""
        began = time.monotonic()
        while left := self.processes():
            for process in left:
                processes.send(process.pid, signal.SIGKILL)
            pause(began)
        for child in self._children:
            child.wait()
            for stream in (child.stdout, child.stderr):
                if stream is not None:
                    stream.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def story(self) -> str:
        """What the yard's own logs say, for a test that failed."""
        pieces = []
        for path in (self.directory / "server.log", self.directory / "agent" / "agent.log"):
            if path.exists():
                pieces.append(f"--- {path}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-60:]))
        return "\n".join(pieces)
