"""Console: what may a command line beside `yard` use? Exit codes, errors as sentences, tables, and jobs to follow.

Public: commands of other systems (`jobyard.compat`) and those of third parties import this and `jobyard.client`. What
else is in `jobyard.cli` belongs to `yard` and may move.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.cli.feed import Feed, StreamBroken, StreamEnded
from jobyard.cli.group import command_of
from jobyard.cli.interrupts import Interrupts
from jobyard.cli.main import INTERRUPTED, exit_with, guarded
from jobyard.cli.output.harmless import harmless
from jobyard.cli.output.pipe import silence
from jobyard.cli.output.summary import exit_code_of
from jobyard.cli.output.table import print_table
from jobyard.cli.output.tasklog import DirectLog
from jobyard.cli.output.text import echo, echo_text, local_time, run_time, state_text, warn
from jobyard.cli.output.training import eta_text, seconds_text, training_progress
from jobyard.cli.session import Session
from jobyard.manifests.context import user_here

__all__ = [
    "INTERRUPTED",
    "DirectLog",
    "Feed",
    "Interrupts",
    "Session",
    "StreamBroken",
    "StreamEnded",
    "echo",
    "echo_text",
    "eta_text",
    "exit_code_of",
    "exit_with",
    "guarded",
    "harmless",
    "local_time",
    "print_table",
    "run_time",
    "run_verb",
    "seconds_text",
    "silence",
    "state_text",
    "training_progress",
    "user_here",
    "warn",
]


def run_verb(verb: str, words: Sequence[str], program: str) -> int:
    """The exit code of `yard VERB WORDS`; in its sentences the command is called `program`."""
    return int(command_of(verb).main(list(words), prog_name=program, standalone_mode=False) or 0)
