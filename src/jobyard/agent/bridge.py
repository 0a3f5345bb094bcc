"""Bridge: how does a server that can only run a command here talk with the agent?"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
import zipfile
from typing import Dict, List

from jobyard.agent.files import places
from jobyard.agent.files.places import Place

EXIT_READ_ONLY = 68
_CHUNK = 1 << 18
_MOST_WAITING = 1 << 20
_CALL_SECONDS = 15.0
_ALREADY_RUNNING = 3


class CannotBridge(Exception):
    """Said on stderr, in one line."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run(yard: str, fake_gpus: str) -> int:
    """Greet, then carry bytes between the agent and whoever started us, until either ends."""
    try:
        stream = _reach(places.of_yard(yard), fake_gpus)
    except (CannotBridge, OSError, ValueError) as error:
        print("jobyard agent: %s" % error, file=sys.stderr)
        return error.exit_code if isinstance(error, CannotBridge) else 1
    with stream:
        os.write(1, _greeting())
        relay(0, 1, stream)
    return 0


def _reach(place: Place, fake_gpus: str) -> socket.socket:
    """A connection to the agent; one is started if none listens."""
    deadline = time.monotonic() + _CALL_SECONDS
    while True:
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            stream.connect(place.socket)
            return stream
        except OSError as error:
            stream.close()
            if time.monotonic() > deadline:
                raise CannotBridge(1, "the agent does not answer on %s: %s" % (place.socket, error)) from error
        _check_writable(place.state)
        if _start(place, fake_gpus) == _ALREADY_RUNNING:
            time.sleep(0.05)  # somebody else's is about to listen, or about to leave


def _check_writable(state: str) -> None:
    path = "%s/.writable-%d" % (state, os.getpid())
    try:
        os.makedirs(state, mode=0o700, exist_ok=True)
        with open(path, "w") as file:
            file.write("yes\n")
        os.unlink(path)
    except OSError as error:
        raise CannotBridge(EXIT_READ_ONLY, "%s cannot be written: %s" % (state, error.strerror)) from error


def _start(place: Place, fake_gpus: str) -> int:
    command = [*_own_command(), "--state", place.state, "--socket", place.socket, "--detach"]
    if fake_gpus:
        command += ["--fake-gpus", fake_gpus]
    if _logout_kills():
        code, _ = _call(["systemd-run", "--user", "--scope", "--quiet", "--", *command])
        if code in (0, _ALREADY_RUNNING):
            return code
    code, said = _call(command)
    if code not in (0, _ALREADY_RUNNING):
        raise CannotBridge(1, "the agent did not start: %s" % (said or "exit code %d" % code))
    return code


def _own_command() -> List[str]:
    """How another process becomes what this one is: the zipapp, or the sources."""
    python = sys.executable or "python3"
    if zipfile.is_zipfile(sys.argv[0]):
        return [python, "-E", "-s", os.path.abspath(sys.argv[0])]
    return [python, "-m", "jobyard.agent.main"]


def _call(command: List[str], seconds: float = _CALL_SECONDS) -> "tuple[int, str]":
    """The exit code and the last line of what it said; nothing that it leaves running holds our own output."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            timeout=seconds,
            env=_lasting_environment(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    said = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return done.returncode, said[-1] if said else ""


def _greeting() -> bytes:
    """Whatever a login prints before this line is not ours. It tells how this machine and the other see each other."""
    theirs, _, ours, _ = (os.environ.get("SSH_CONNECTION", "").split() + [""] * 4)[:4]
    return b" ".join(word.encode() for word in ("jobyard bridge", ours, theirs) if word) + b"\n"


def _lasting_environment() -> Dict[str, str]:
    """Ours without what ends with this login; tasks inherit the rest."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SSH_")}


def _logout_kills() -> bool:
    """Would systemd end what a login leaves behind, and can a scope of the user's own prevent it?"""
    if not os.path.isdir("/run/systemd/system"):
        return False
    if _call(["loginctl", "show-session", "--property=KillUserProcesses"], 2.0) != (0, "KillUserProcesses=yes"):
        return False
    # A scope lives no longer than the user's own systemd, and that only outlives the login when it lingers.
    if not places.is_lingering():
        _call(["loginctl", "enable-linger"], 2.0)
    return places.is_lingering()


class _Way:
    """One direction: what has been read from `source` and waits for `target`."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.target = target
        self.waiting = bytearray()
        self.has_ended = False

    def read(self) -> None:
        try:
            data = os.read(self.source, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.waiting += data
        self.has_ended = not data

    def write(self) -> None:
        try:
            with memoryview(self.waiting) as view:
                sent = os.write(self.target, view[:_CHUNK])
            del self.waiting[:sent]
        except BlockingIOError:
            pass
        except OSError:  # nobody reads any more
            self.waiting.clear()
            self.has_ended = True


def relay(stdin: int, stdout: int, stream: socket.socket) -> None:
    """Carry bytes both ways until one side has ended and what it said is delivered. Neither way waits for the other."""
    ways = (_Way(stdin, stream.fileno()), _Way(stream.fileno(), stdout))
    for descriptor in (stdin, stdout, stream.fileno()):
        os.set_blocking(descriptor, False)
    while not any(way.has_ended and not way.waiting for way in ways):
        readers = [way.source for way in ways if not way.has_ended and len(way.waiting) < _MOST_WAITING]
        writers = [way.target for way in ways if way.waiting]
        readable, writable, _ = select.select(readers, writers, [])
        for way in ways:
            if way.source in readable:
                way.read()
            # What has just come goes at once: mostly there is room.
            if way.waiting and (way.target in writable or way.source in readable):
                way.write()
