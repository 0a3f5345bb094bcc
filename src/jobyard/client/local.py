"""Local server: how is this user's yard on this machine reached, and its server started, replaced or restarted?"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from jobyard import settings
from jobyard.client.address import Address, parse_address
from jobyard.client.api import OtherVersion, YardClient
from jobyard.client.transport import NotSent
from jobyard.errors import Unreachable, UserError, YardError
from jobyard.settings import ClientKnobs
from jobyard.wire.views import ServerView

POLL_SECONDS = 0.02
Warn = Callable[[str], None]


def connect(given_yard: str | None, knobs: ClientKnobs, warn: Warn) -> YardClient:
    """A client whose server answered just now: YARD_URL's, or the local yard's, which is started where none runs.

    A directory that was given by hand wins over YARD_URL. Raises Unreachable.
    """
    remote = remote_address(given_yard)
    if remote is not None:
        client = YardClient(remote, knobs)
        client.server()
        return client
    yard = LocalYard(settings.yard_dir(given_yard), knobs)
    yard.ensure_server(warn)
    return YardClient(yard.address, knobs, revive=yard.start)


def running_client(given_yard: str | None, knobs: ClientKnobs, seconds: float) -> YardClient:
    """A client of a server that may not be there: none is started, and no call takes much longer than this."""
    address = remote_address(given_yard) or LocalYard(settings.yard_dir(given_yard), knobs).address
    return YardClient(address, replace(knobs, reconnect_seconds=0.0, request_seconds=seconds))


def remote_address(given_yard: str | None) -> Address | None:
    url = os.environ.get("YARD_URL", "")
    return parse_address(url, os.environ.get("YARD_TOKEN", "")) if url and not given_yard else None


def server_environment() -> dict[str, str]:
    """What a server is started with: ours, without the token by which this shell reaches another one."""
    return {name: value for name, value in os.environ.items() if name != "YARD_TOKEN"}


class LocalYard:
    """A directory and the background server that belongs to it."""

    def __init__(self, directory: Path, knobs: ClientKnobs) -> None:
        self.directory = directory
        self.address = Address(socket=str(settings.socket_path(directory)))
        self._knobs = knobs
        self._client = YardClient(self.address, replace(knobs, reconnect_seconds=0.0))  # no retries

    def running(self) -> ServerView | None:
        """The server that answers now, or None. Never starts one."""
        try:
            return self._client.server()
        except NotSent:
            return None

    def ensure_server(self, warn: Warn) -> None:
        """Afterwards a server answers, and it runs our code: a stale one is replaced when idle, used when busy."""
        try:
            build = self._client.server().build
        except Unreachable:
            self.start()
            return
        except OtherVersion:
            build = ""
        if build != settings.build_id():
            self._replace(warn)

    def start(self) -> None:
        """Start a server in the background; nothing where one answers. Of many callers at once, one starts it."""
        deadline = time.monotonic() + self._knobs.start_seconds
        tries = 0
        with self._start_lock():
            while not self._client.is_answered():
                tries += 1
                try:
                    self._spawn()
                    return
                except Unreachable:
                    # Another server may be starting (by an agent) or ending: it has the lock, but does not answer.
                    if time.monotonic() >= deadline or (tries > 1 and not self._is_held()):
                        raise
                self._await_holder(deadline)

    def _await_holder(self, deadline: float) -> None:
        while self._is_held() and not self._client.is_answered() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _is_held(self) -> bool:
        """Whether a server holds the yard's lock, perhaps one that does not listen yet or any more."""
        try:
            with open(settings.server_lock_path(self.directory)) as lock:
                return not _is_locked(lock, fcntl.LOCK_SH)
        except OSError:
            return False

    def stop(self, *, force: bool = False) -> bool:
        """False where none runs. Returns when it is gone. Raises what the server says while work is pending."""
        pid = self._pid()
        try:
            self._client.stop_server(force=force)
        except NotSent:
            return False
        except Unreachable:
            pass  # it ended before it answered
        deadline = time.monotonic() + self._knobs.start_seconds
        # Wait for its process: it stops listening first, and is done when everything is saved. A server that answers
        # after that is another one, started by an agent or a second `yard`.
        while self._client.is_answered() if pid is None else _is_alive(pid):
            if time.monotonic() >= deadline:
                raise YardError(f"the server of {self.directory} should stop and still answers; see `yard server logs`")
            time.sleep(POLL_SECONDS)
        return True

    def _pid(self) -> int | None:
        try:
            return self._client.server().pid
        except YardError:
            return None

    def _replace(self, warn: Warn) -> None:
        try:
            self.stop()
        except UserError:  # refused: it has work
            warn("the server runs other code than this `yard` and has work; `yard server stop` once it is idle")
        else:
            self.start()

    def _spawn(self) -> None:
        """Run the server until it has put itself into the background. -P: no module of the user's directory gets in."""
        command = [sys.executable, "-P", "-m", "jobyard.server", "--yard", str(self.directory), "--background"]
        # A file, not a pipe: whatever the server kept open cannot hold us up. Its own session: our Ctrl-C is not its.
        with tempfile.TemporaryFile() as said:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    start_new_session=True,
                    env=server_environment(),
                )
                code = process.wait(self._knobs.start_seconds)
            except OSError as error:
                raise Unreachable(f"cannot start the server of {self.directory}: {error.strerror}") from error
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise Unreachable(
                    f"the server of {self.directory} did not answer within {self._knobs.start_seconds:g} s;"
                    " see `yard server logs`, or raise YARD_START_SECONDS"
                ) from None
            said.seek(0)
            if code != 0 and not self._client.is_answered():  # another server may have started first
                # 2: the directory or its content is at fault, and the user can do something about it.
                raise (UserError if code == 2 else Unreachable)(self._complaint(said.read(), code))

    def _complaint(self, said: bytes, code: int) -> str:
        lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
        why = lines[-1].strip().removeprefix("yard: ") if lines else f"it ended with exit code {code}"
        return f"the server of {self.directory} cannot start: {why}"

    @contextmanager
    def _start_lock(self) -> Iterator[None]:
        deadline = time.monotonic() + 2 * self._knobs.start_seconds
        with open(settings.start_lock_path(self.directory), "a") as lock:
            while not _is_locked(lock):
                if time.monotonic() >= deadline:
                    raise Unreachable(f"another `yard` has been starting the server of {self.directory} for too long")
                time.sleep(POLL_SECONDS)
            yield


def _is_alive(pid: int | None) -> bool:
    """A process that ended and is only waiting for init to notice (in a container: for long) is not."""
    if pid is None:
        return False
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def _is_locked(file: IO[str], kind: int = fcntl.LOCK_EX) -> bool:
    """Whether we could lock it; the lock ends with the file."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
