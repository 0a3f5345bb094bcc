"""Entry points: how do the commands start and fail? Each error is one sentence and an exit code, as with `yard`."""

from __future__ import annotations

import getpass
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from typing import NoReturn

from jobyard.console import Session, exit_with, guarded
from jobyard.errors import UserError


class Parser(ArgumentParser):
    """argparse, with one sentence for an error."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see `{self.prog} --help`")


def main(program: str, run: Callable[[Sequence[str]], int]) -> None:
    words = sys.argv[1:]
    exit_with(guarded(lambda: run(words), program, words))


def session() -> Session:
    return Session(None, "table")


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def job_argument(program: str, description: str, words: Sequence[str]) -> str:
    """The one word of commands that take a job."""
    parser = Parser(prog=program, description=description)
    parser.add_argument("jobid", help="as run-scheduler printed it, or the job's name")
    return str(parser.parse_args(list(words)).jobid)
