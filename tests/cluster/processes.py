"""The programs of a test cluster as processes of ours: each has a log, and each is ended by its own id."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

from tests.waiting import PATIENCE_SECONDS

GRACE_SECONDS = 10.0
T = TypeVar("T")


class DidNotStart(Exception):
    """A program of the cluster ended, or was not ready in time; the message has the end of its log."""


class Program:
    """One running program, in a session of its own. It ends through `stop`, or with the thread that began it."""

    def __init__(self, command: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = log.stem
        self.log = log
        self.command = ["setpriv", "--pdeathsig", "KILL", "--", *(str(word) for word in command)]
        self.env = {**os.environ, **(env or {})}
        self._start()

    def _start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.env,
                cwd=self.log.parent,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """Ask, wait, then kill. Repeatable."""
        self.signal(signal.SIGTERM)
        if not self.wait(GRACE_SECONDS):
            self.kill()

    def kill(self) -> None:
        """As `kill -9` would."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        """As after a crash: `kill -9`, then the same command again. The log goes on."""
        self.kill()
        self._start()

    def signal(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def until_ready(self, is_ready: Callable[[], T | None], seconds: float = PATIENCE_SECONDS) -> T:
        """What `is_ready` answers first; it is asked again soon, and at once when the program has ended."""
        deadline = time.monotonic() + seconds
        ended = os.pidfd_open(self.pid)
        try:
            while not (answer := is_ready()):
                gone, _, _ = select.select([ended], [], [], 0.05)
                if gone or time.monotonic() > deadline:
                    raise DidNotStart(f"{self.name} {'ended' if gone else 'is not ready'}: {self.last_words()}")
        finally:
            os.close(ended)
        return answer

    def until_it_answers(self, url: str) -> None:
        """Returns when this address of the program says 200."""
        self.until_ready(lambda: _answers(url))

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-1500:]


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def free_port(address: str = "127.0.0.1") -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port
