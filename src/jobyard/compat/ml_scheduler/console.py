"""Console: how are lines printed? ml-scheduler's on stdout, each at once; our own sentences on stderr.

Where nobody reads any more (`| head`) the work goes on to its end, and the rest is not printed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from jobyard.console import DirectLog, echo, echo_text, silence
from jobyard.wire.views import LogChunk

PROGRAM = "execute_batch"


def tell(line: str) -> None:
    _write(sys.stdout, lambda: echo_text(f"{line}\n"))


def say(sentence: str) -> None:
    _write(sys.stderr, lambda: echo(f"{PROGRAM}: {' '.join(sentence.split())}", err=True))


def warn(sentence: str) -> None:
    say(f"warning: {sentence}")


def show(chunk: LogChunk) -> None:
    """What a command wrote, as if it ran here."""
    _write(sys.stderr if chunk.stream == "err" else sys.stdout, lambda: DirectLog().write(chunk))


def _write(stream: TextIO, write: Callable[[], None]) -> None:
    try:
        write()
        stream.flush()
    except BrokenPipeError:
        silence(stream)
