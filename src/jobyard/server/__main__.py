"""Command line: `python -m jobyard.server --yard DIR [--background | --listen HOST:PORT]`. Heavy imports come late."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path

from jobyard import settings
from jobyard.errors import YardError
from jobyard.server.log_file import log_to_stderr, open_log

ANY_HOST = ("0.0.0.0", "[::]", "::")


def main() -> int:
    parser = argparse.ArgumentParser(prog="jobyard.server")
    parser.add_argument("--yard", type=Path, required=True)
    parser.add_argument("--background", action="store_true", help="return once the server answers")
    parser.add_argument("--listen", default="", help="HOST:PORT, beside the Unix socket; every call needs a token")
    parser.add_argument("--db", default="", help="the database URL; default: SQLite in the yard")
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        if options.background:
            return start_in_background(options.yard, options.listen)
        log_to_stderr(settings.server_log_path(options.yard))
        run = import_module("jobyard.server.main")
        asyncio = import_module("asyncio")
        ready = options.ready_fd
        if ready is None and options.listen:
            ready = say_when_ready(options.yard, options.listen)
        asyncio.run(run.serve(options.yard, options.listen, options.db, ready))
    except YardError as error:
        print(f"yard: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def say_when_ready(yard: Path, listen: str) -> int:
    """Called when the server answers: a server in the foreground then prints how to reach it."""
    ready, ready_writer = os.pipe()
    host, _, port = listen.rpartition(":")
    shown = f"{socket.gethostname()}:{port}" if host in ANY_HOST else listen

    def say() -> None:
        if os.read(ready, 3) == b"ok\n":
            sentence = f"serving {yard} on {listen}; clients need YARD_URL=http://{shown} and YARD_TOKEN"
            print(f"yard: {sentence}", file=sys.stderr, flush=True)

    threading.Thread(target=say, name="say when ready", daemon=True).start()
    return ready_writer


def start_in_background(yard: Path, listen: str) -> int:
    """A server of its own session with none of our descriptors; returns when it answers or has said why not."""
    settings.make_yard_dir(yard)
    try:
        log_path = settings.server_log_path(yard)
        log = open_log(log_path)
    except OSError as error:
        print(f"yard: the yard {yard} cannot be used: {error.strerror}; choose another with --yard", file=sys.stderr)
        return 2
    said_from = os.fstat(log).st_size
    ready, ready_writer = os.pipe()
    command = [sys.executable, "-P", "-m", "jobyard.server", "--yard", str(yard), "--ready-fd", str(ready_writer)]
    server = subprocess.Popen(
        command + (["--listen", listen] if listen else []),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd="/",
        start_new_session=True,
        pass_fds=(ready_writer,),
    )
    os.close(ready_writer)
    if os.read(ready, 3) == b"ok\n":
        return 0
    with log_path.open("rb") as file:
        file.seek(said_from)
        said = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    print(said[-1] if said else f"yard: the server ended at once; see {log_path}", file=sys.stderr)
    return server.wait() or 1


if __name__ == "__main__":
    sys.exit(main())
