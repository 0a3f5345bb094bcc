"""How is something said? ml-scheduler's lines on stdout, each at once; our own sentences on stderr."""

from __future__ import annotations

import sys

PROGRAM = "execute_batch"


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def say(sentence: str) -> None:
    sys.stderr.write(f"{PROGRAM}: {' '.join(sentence.split())}\n")


def warn(sentence: str) -> None:
    say(f"warning: {sentence}")
