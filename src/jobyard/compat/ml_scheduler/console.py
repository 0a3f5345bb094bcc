"""How is something said? ml-scheduler's lines on stdout, each at once; our own sentences on stderr."""

from __future__ import annotations

import sys

from jobyard.cli.output.text import echo, echo_text

PROGRAM = "execute_batch"


def tell(line: str) -> None:
    echo_text(f"{line}\n")
    sys.stdout.flush()


def say(sentence: str) -> None:
    echo(f"{PROGRAM}: {' '.join(sentence.split())}", err=True)


def warn(sentence: str) -> None:
    say(f"warning: {sentence}")
