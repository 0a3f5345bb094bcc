"""`yard tensorboard`: show a job's training in TensorBoard."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys

import click

from jobyard import settings
from jobyard.cli.logdirs import find_log_dir
from jobyard.cli.option_values import WholeNumber
from jobyard.cli.output.harmless import harmless
from jobyard.cli.output.json import print_json_line
from jobyard.cli.output.text import echo, say
from jobyard.cli.session import Session, with_session
from jobyard.errors import UserError, YardError

HOST = "127.0.0.1"
USUAL_PORT = 6006  # TensorBoard's own
LEAVE_SECONDS = 5.0


@click.command("tensorboard")
@with_session
@click.argument("job", metavar="JOB")
@click.option(
    "--port", type=WholeNumber(1, 65535), metavar="N", help="Listen there; default: 6006, or any that is free."
)
def command(session: Session, job: str, port: int | None) -> int:
    """Start the TensorBoard of this environment on a job's logs, and print its address. Ctrl-C ends it.

    The logs are where --log-dir said; without it, those of Lightning or of a SummaryWriter that are found in the
    job's snapshots, checkpoint, output and working directories on this machine.
    """
    view = session.client.job(job)
    files = None if session.is_remote else settings.yard_dir(session.yard) / "agent"
    log_dir = find_log_dir(view, files)
    program = tensorboard_words(log_dir)
    port = _free_port(port)
    address = f"http://{HOST}:{port}/"
    if session.is_json:
        print_json_line({"address": address, "log_dir": log_dir})
    else:
        echo(address)
        say(f"logs of job {view.number} in {harmless(log_dir)}; Ctrl-C ends TensorBoard")
    sys.stdout.flush()
    return _run([*program, f"--logdir={log_dir}", "--host", HOST, "--port", str(port)])


def tensorboard_words(log_dir: str) -> list[str]:
    """How TensorBoard is called in the user's environment. Raises UserError where it is not installed."""
    if found := shutil.which("tensorboard"):
        return [found]
    for name in ("python", "python3"):
        python = shutil.which(name)
        check = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorboard') is None)"
        if python and subprocess.run([python, "-c", check], check=False, capture_output=True).returncode == 0:
            return [python, "-m", "tensorboard.main"]
    raise UserError(
        f"tensorboard is not installed in this environment; `pip install tensorboard`, then try again (the logs are "
        f"in {log_dir})"
    )


def _free_port(wanted: int | None) -> int:
    """The wanted one, or the usual one, or any. Raises UserError where the wanted one is taken."""
    for port in (wanted,) if wanted else (USUAL_PORT, 0):
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((HOST, port))
            except OSError:
                continue
            return int(listener.getsockname()[1])
    raise UserError(f"--port: {wanted} is taken or not yours to use; choose another, or leave it out")


def _run(words: list[str]) -> int:
    """Until it ends or Ctrl-C: the child is in our process group, and gets that signal too."""
    child: subprocess.Popen[bytes] | None = None
    try:
        child = subprocess.Popen(words)
        code = child.wait()
    except KeyboardInterrupt:  # it may come while the child begins
        if child is not None:
            _leave(child)
        return 0
    if code:
        raise YardError(f"tensorboard ended with code {code}; what it said stands above")
    return 0


def _leave(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(LEAVE_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        child.kill()
        child.wait()
