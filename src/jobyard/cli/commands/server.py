"""`yard server`: start, stop or look at this yard's background server."""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path
from typing import BinaryIO

import click

from jobyard import settings
from jobyard.cli.help_sections import VerbGroup
from jobyard.cli.option_values import WholeNumber
from jobyard.cli.output.json import print_json
from jobyard.cli.output.table import print_fields
from jobyard.cli.output.text import age, echo_text, say, warn
from jobyard.cli.session import Session, with_session
from jobyard.errors import UserError
from jobyard.model import codec
from jobyard.wire.views import ServerView

NOT_RUNNING = 3  # as `systemctl status` says it, and as an unreachable yard does
POLL_SECONDS = 0.2


@click.group("server", cls=VerbGroup)
def command() -> None:
    """Start, stop or look at this yard's background server. It starts by itself, and ends when idle."""


@command.command("status")
@with_session
def status(session: Session) -> int:
    """Say whether a server runs; never starts one. Exit code 3 when none does."""
    view = session.client.server() if session.is_remote else session.local_yard("server status").running()
    if session.is_json:
        print_json({"running": True, **codec.encode(view, defaults=True)} if view else {"running": False})
    elif view is not None:
        _print(view)
    else:
        say(f"no server runs for {settings.yard_dir(session.yard)}; it starts with the next `yard run`")
    return 0 if view is not None else NOT_RUNNING


@command.command("start")
@with_session
def start(session: Session) -> int:
    """Start a server in the background; nothing where one runs already."""
    yard = session.local_yard("server start")
    yard.ensure_server(warn)
    return _shown(session, yard.running())


@command.command("stop")
@with_session
@click.option(
    "--force", is_flag=True, help="Even while work is pending: running tasks go on, and it starts again later."
)
def stop(session: Session, force: bool) -> int:
    """Stop the server, and wait until it is gone. Refused while work is pending.

    Where YARD_URL names the server, it needs the token of an admin, and is only asked to stop.
    """
    if session.is_remote:
        return _stop_remote(session, force=force)
    was_running = session.local_yard("server stop").stop(force=force)
    if session.is_json:
        print_json({"running": False, "stopped": was_running})
    else:
        say("stopped" if was_running else "no server was running")
    return 0


def _stop_remote(session: Session, *, force: bool) -> int:
    """Does not wait: a supervisor there (systemd, Kubernetes) may start it again at once."""
    session.client.stop_server(force=force)
    if session.is_json:
        print_json({"stopped": True})
    else:
        say(f"the server at {session.client.address} stops")
    return 0


@command.command("logs")
@with_session
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--tail", type=WholeNumber(min=0), default=100, show_default=True, metavar="N", help="The last N lines.")
def logs(session: Session, follow: bool, tail: int) -> int:
    """Show the server's own log."""
    path = settings.server_log_path(session.local_yard("server logs").directory)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise UserError(f"no log yet at {path}; `yard server start` starts a server") from None
    with file:
        lines = deque(file, maxlen=tail)
        if session.is_json:
            print_json({"path": str(path), "lines": [line.decode("utf-8", "replace").rstrip("\n") for line in lines]})
            return 0
        echo_text(b"".join(lines))
        while follow:
            echo_text(file.read())
            if _is_moved(file, path):  # it was rotated: new lines are in a new file
                echo_text(file.read())
                file.close()
                file = path.open("rb")
            time.sleep(POLL_SECONDS)
    return 0


def _is_moved(file: BinaryIO, path: Path) -> bool:
    """Whether the path is another file by now; not while there is none."""
    try:
        return path.stat().st_ino != os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False


def _shown(session: Session, view: ServerView | None) -> int:
    if view is None:
        say("the server ended again at once; see `yard server logs`")
        return NOT_RUNNING
    if session.is_json:
        print_json({"running": True, **codec.encode(view, defaults=True)})
    else:
        _print(view)
    return 0


def _print(view: ServerView) -> None:
    is_ours = view.build == settings.build_id()
    print_fields(
        [
            ("server", f"pid {view.pid}, up {age(view.started_at)}"),
            ("yard", view.yard),
            ("listens", view.listen),
            ("version", f"{view.build}{'' if is_ours else ' (other code than this `yard`)'}"),
            ("database", view.database),
            ("active", f"{view.jobs_active} jobs, {view.tasks_active} tasks"),
            ("agents", ", ".join(f"{agent.node} (pid {agent.pid or '?'})" for agent in view.agents)),
        ]
    )
