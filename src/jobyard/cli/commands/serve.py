"""`yard serve`: the same server on TCP, in the foreground."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from jobyard import settings
from jobyard.cli.session import Session, with_session
from jobyard.client.api import OtherVersion
from jobyard.client.local import LocalYard, server_environment
from jobyard.errors import UserError
from jobyard.model.units import whole_number
from jobyard.settings import ClientKnobs


@click.command("serve")
@with_session
@click.option("--listen", required=True, metavar="HOST:PORT", help="Where to listen, for example 0.0.0.0:7077.")
@click.option("--db", metavar="URL", help="The database.  [env: YARD_DB; default: SQLite in the yard's directory]")
@click.option("--run-as", metavar="USER", help="Run all tasks on this machine as this user.  [env: YARD_RUN_AS]")
def command(session: Session, listen: str, db: str | None, run_as: str | None) -> int:
    """Run the server on TCP for a team, in the foreground. Every call needs a token: `yard token create NAME`."""
    check_listen(listen)
    yard = settings.yard_dir(session.yard)
    # In the environment and not in the arguments: it may hold a password, and all users can see arguments.
    environ = {**server_environment(), **({"YARD_DB": db} if db else {}), **({"YARD_RUN_AS": run_as} if run_as else {})}
    make_way(yard, session.knobs)
    arguments = ["-P", "-m", "jobyard.server", "--yard", str(yard), "--listen", listen]
    os.execve(sys.executable, [sys.executable, *arguments], environ)


def make_way(yard: Path, knobs: ClientKnobs) -> None:
    """Stop the background server that `yard token create` and others started: a yard has only one server."""
    local = LocalYard(yard, knobs)
    try:
        running = local.running()
    except OtherVersion:
        running = None
    if running is not None and not running.listen.startswith("unix:"):
        raise UserError(
            f"{yard} is served already, on {running.listen} by process {running.pid}; `yard server stop` ends that one"
        )
    try:
        local.stop()
    except UserError as error:
        raise UserError(
            f"the background server of {yard} has work; serve once its jobs have ended (`yard ls`),"
            " or right after `yard server stop --force` (running tasks go on)"
        ) from error


def check_listen(listen: str) -> None:
    host, colon, port = listen.rpartition(":")
    if not colon or not host or (number := whole_number(port)) is None or number > 65535:
        raise UserError(f"--listen: cannot read {listen!r}; write HOST:PORT, for example 127.0.0.1:7077")
