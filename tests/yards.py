"""A yard for tests: directories of its own, the real command line, and nothing left behind."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jobyard
from jobyard.client.address import Address
from jobyard.client.api import YardClient
from jobyard.model import codec
from jobyard.settings import ClientKnobs
from tests.waiting import PATIENCE_SECONDS, pause, until

SOURCE = Path(jobyard.__file__).resolve().parents[1]
ROOT = Path(__file__).resolve().parents[1]
# Root may open every file; without these two powers it meets the modes of files as everybody does.
AS_ANYBODY = (
    ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]
    if os.getuid() == 0
    else []
)
MARKER = "JOBYARD_TEST_YARD"


@dataclass(frozen=True)
class Done:
    """How one call of `yard` ended."""

    code: int
    stdout: bytes
    stderr: bytes
    seconds: float

    @property
    def out(self) -> str:
        return self.stdout.decode()

    @property
    def err(self) -> str:
        return self.stderr.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


class TemporaryYard:
    """A yard directory, home and runtime directory of its own. `close` ends every process that came from it."""

    def __init__(self, prefix: Sequence[str] = (), **env: str) -> None:
        """`prefix` is run before every call of `yard`, as `nice` would be."""
        self.prefix = list(prefix)
        # Short: a socket's path has 108 bytes.
        self.root = Path(tempfile.mkdtemp(prefix="yt-", dir="/tmp"))
        self.directory = self.root / "yard"
        self.home = self.root / "home"
        self.work = self.root / "work"
        self.runtime = self.root / "run"
        for path in (self.directory, self.home, self.work, self.runtime):
            path.mkdir(mode=0o700)
        self.env = {
            **_bare_environment(),
            "HOME": str(self.home),
            "YARD_DIR": str(self.directory),
            "YARD_IDLE_SECONDS": "120",
            "YARD_START_SECONDS": "120",  # a busy machine takes a while
            "XDG_RUNTIME_DIR": str(self.runtime),
            "XDG_CACHE_HOME": str(shared_cache()),
            "JOBYARD_RESERVATIONS_DIR": str(self.root / "reservations"),
            "JOBYARD_FAKE_GPU_DIR": str(self.root / "fake-gpus"),
            "PYTHONPATH": str(SOURCE),
            MARKER: str(self.root),
            **env,
        }

    def __enter__(self) -> TemporaryYard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- calling

    def run(
        self,
        *words: str,
        input: str | bytes = b"",
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        seconds: float = PATIENCE_SECONDS,
    ) -> Done:
        """One call of `yard`, to its end, whatever that is."""
        begin = time.monotonic()
        data = input.encode() if isinstance(input, str) else input
        done = subprocess.run(
            self.command(*words),
            input=data,
            capture_output=True,
            cwd=cwd or self.work,
            env={**self.env, **(env or {})},
            timeout=seconds,
        )
        return Done(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)

    def ok(self, *words: str, **options: Any) -> Done:
        done = self.run(*words, **options)
        assert done.code == 0, f"yard {' '.join(words)} ended with {done.code}: {done.err}\n{self.server_log()}"
        return done

    def json(self, *words: str, **options: Any) -> Any:
        """What a call says as JSON; its exit code must be 0. Words after `--` are the job's."""
        cut = words.index("--") if "--" in words else len(words)
        return self.ok(*words[:cut], "-o", "json", *words[cut:], **options).json

    def submit(self, *words: str, **options: Any) -> str:
        """The id of a new job."""
        return str(self.ok("submit", "-o", "json", *words, **options).json["id"])

    def start(self, *words: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> subprocess.Popen[bytes]:
        """A call of `yard` that goes on beside the test; close it with `with`."""
        return subprocess.Popen(
            self.command(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd or self.work,
            env={**self.env, **(env or {})},
        )

    def terminal(self, *words: str, columns: int = 100) -> Terminal:
        return Terminal(self.command(*words), self.env, self.work, columns)

    def command(self, *words: str) -> list[str]:
        return [*self.prefix, sys.executable, "-P", "-m", "jobyard.cli.main", *words]

    # -- looking

    def job(self, selector: str = "last") -> dict[str, Any]:
        view: dict[str, Any] = codec.encode(self.client.job(selector), defaults=True)
        return view

    def tasks(self, selector: str = "last") -> list[dict[str, Any]]:
        return [codec.encode(task, defaults=True) for task in self.client.tasks(selector, limit=100_000)]

    @property
    def client(self) -> YardClient:
        """The typed client on the yard's socket; it starts no server."""
        return YardClient(Address(socket=str(self.socket)), ClientKnobs(reconnect_seconds=0.0))

    def wait_state(self, selector: str, *states: str) -> dict[str, Any]:
        """The job once it is in one of these states."""
        return until(lambda: found if (found := self.job(selector))["state"] in states else None)

    def logs(self, selector: str = "last", *words: str) -> str:
        return self.ok("logs", selector, *words).out

    @property
    def socket(self) -> Path:
        name = hashlib.sha256(os.fsencode(os.path.realpath(self.directory))).hexdigest()[:12]
        return self.runtime / "jobyard" / f"{name}.sock"

    def server_pid(self) -> int | None:
        """Without starting one."""
        pid: int | None = self.run("server", "status", "-o", "json").json.get("pid")
        return pid

    def agent_pid(self) -> int:
        (agent,) = self.json("doctor")["agents"]
        pid: int = agent["pid"]
        return pid

    def server_log(self) -> str:
        path = self.directory / "server.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else "(no server log)"

    def write(self, name: str, text: str | bytes) -> str:
        """A file in the directory where `yard` is called; its name."""
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return name

    # -- ending

    def settle(self) -> None:
        """Nothing runs any more, the server stays."""
        if self.socket.exists() and self.client.is_answered():
            unfinished = [job.id for job in self.client.jobs(all=True, limit=1000) if not job.state.is_final]
            for job in unfinished:
                self.client.cancel(job, force=True)
            for job in unfinished:
                until(lambda job=job: self.client.job(job).state.is_final)  # type: ignore[misc]

    def close(self) -> None:
        """End the server, the agent, its lanes and tasks, whatever state they are in, and remove all files."""
        try:
            self.end_processes()
        finally:
            for path in self.root.rglob("*"):
                if path.is_dir() and not path.is_symlink():
                    path.chmod(0o700)
            shutil.rmtree(self.root, ignore_errors=True)

    def end_processes(self) -> None:
        began = time.monotonic()
        while pids := list(self.processes()):
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            assert time.monotonic() < began + PATIENCE_SECONDS, f"processes {pids} do not end"
            pause(began)

    def processes(self) -> Iterator[int]:
        """Everything that was started from here carries our mark in its environment."""
        mark = f"{MARKER}={self.root}\0".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if mark in (entry / "environ").read_bytes():
                        yield int(entry.name)
                except OSError:
                    continue


class Terminal:
    """`yard` on a terminal of its own: what is on the screen, and keys."""

    def __init__(self, command: Sequence[str], env: dict[str, str], cwd: Path, columns: int) -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (30, columns))
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**env, "TERM": "xterm-256color"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.text = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    @property
    def plain(self) -> str:
        """What came, without what steers the terminal."""
        return re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|.)", "", self.text)

    def press(self, key: bytes) -> None:
        os.write(self._master, key)

    def until(self, pattern: str) -> str:
        """Wait until this is seen; what came so far."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not re.search(pattern, self.plain):
            assert self._read(deadline), f"ended without {pattern!r}:\n{self.plain}"
        return self.plain

    def ended(self) -> int:
        """Wait for the end; the exit code."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE_SECONDS)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"nothing more came:\n{self.plain}"
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: nobody has the other side any more
            return False
        self.text += data.decode(errors="replace")
        return bool(data)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def _bare_environment() -> dict[str, str]:
    """Ours, without what would lead a yard elsewhere."""
    foreign = re.compile(r"(YARD|JOBYARD|XDG|SLURM|JOB|CUDA)_|PYTEST|PYTHON|NO_COLOR|TMPDIR|COLUMNS|LINES")
    return {name: value for name, value in os.environ.items() if not foreign.match(name)}


def shared_cache() -> Path:
    """The agent is built once for all tests of a day."""
    path = Path(tempfile.gettempdir()) / f"jobyard-test-cache-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    return path
