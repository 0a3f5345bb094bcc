"""Entry points: how do the commands start and fail? Each error is one sentence and an exit code, as with `yard`."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Sequence

from jobyard.compat.ml_scheduler import console
from jobyard.compat.ml_scheduler.running import Interrupted, TerminalClosed
from jobyard.console import INTERRUPTED, exit_with, guarded


def main(program: str, run: Callable[[Sequence[str]], int]) -> None:
    console.PROGRAM = program
    words = sys.argv[1:]
    exit_with(guarded(lambda: _run(run, words), program, words))


def _run(run: Callable[[Sequence[str]], int], words: Sequence[str]) -> int:
    try:
        return run(words)
    except Interrupted:
        return INTERRUPTED
    except TerminalClosed as gone:
        console.say("detached; what was submitted goes on: yard ls")
        return 128 + gone.number


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
