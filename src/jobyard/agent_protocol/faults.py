"""Fault points: where can a test kill this process, exactly between two steps?"""

from __future__ import annotations

import os
import signal

DIRECTORY = os.environ.get("JOBYARD_FAULTS", "")


def point(name: str) -> None:
    """Die here by SIGKILL if the file `name` is in JOBYARD_FAULTS; whoever removes the file is the one that dies."""
    if DIRECTORY:
        _die_if_asked(name)


def _die_if_asked(name: str) -> None:
    try:
        os.unlink(os.path.join(DIRECTORY, name))
    except OSError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
