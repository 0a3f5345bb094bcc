"""The start of a server: whoever started it may go away, it may be told to end, and it may fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.waiting import PATIENCE_SECONDS, until
from tests.yards import TemporaryYard

# `{there}` is where something happens, before what the server does there.
SERVER = """
import asyncio, os, pathlib, signal, sys
from jobyard.server import main

def fail():
    raise OSError("the disk is gone")

def end():
    os.kill(os.getpid(), signal.SIGTERM)

def first(happens, then):
    def both(*given):
        happens()
        return then(*given)
    return both

{there} = first({happens}, {there})
asyncio.run(main.serve(pathlib.Path(sys.argv[1]), "", "", int(sys.argv[2])))
"""
IN_ORDER, BY_THE_SIGNAL, WITH_THE_ERROR = 0, -signal.SIGTERM, 1
PHASES = [
    ("main._open_yard", "end", BY_THE_SIGNAL),
    ("main.Machines.start", "end", IN_ORDER),
    ("main._listeners", "end", IN_ORDER),
    ("main._say_ready", "end", IN_ORDER),
    ("main.Machines.start", "fail", WITH_THE_ERROR),
    ("main._listeners", "fail", WITH_THE_ERROR),
]


def started(yard: TemporaryYard, *words: str) -> subprocess.Popen[bytes]:
    """As a client starts it that does not live to hear that it answers."""
    ready, ready_writer = os.pipe()
    os.close(ready)
    try:
        command: Sequence[str] = [sys.executable, "-P", *words, str(ready_writer)]
        return subprocess.Popen(
            command, env=yard.env, pass_fds=(ready_writer,), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    finally:
        os.close(ready_writer)


def test_a_server_serves_on_when_the_client_that_started_it_is_gone(own_yard: TemporaryYard) -> None:
    server = started(own_yard, "-m", "jobyard.server", "--yard", str(own_yard.directory), "--ready-fd")
    until(lambda: server.poll() is not None or (own_yard.socket.exists() and own_yard.client.is_answered()))
    server.terminate()
    said, _ = server.communicate(timeout=PATIENCE_SECONDS)
    assert server.returncode == 0, said.decode()


def test_whatever_happens_while_a_server_starts_it_ends_and_leaves_the_yard(own_yard: TemporaryYard) -> None:
    own_yard.env["YARD_OWN_MACHINE"] = "no"
    servers = []
    for number, (there, happens, _) in enumerate(PHASES):
        directory: Path = own_yard.root / f"yard{number}"
        servers.append(started(own_yard, "-c", SERVER.format(there=there, happens=happens), str(directory)))
    for server, (there, happens, how) in zip(servers, PHASES, strict=True):
        said, _ = server.communicate(timeout=PATIENCE_SECONDS)
        assert server.returncode == how, (there, happens, said.decode())
