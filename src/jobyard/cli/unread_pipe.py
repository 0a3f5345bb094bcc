"""Unread pipe: is something piped to `yard run` that no task reads?"""

from __future__ import annotations

import os
import select
import stat

from jobyard.cli.output.text import warn


def warn_of_unread_pipe() -> None:
    """Called when all that was asked for has been read: what waits in the pipe then is read by nobody."""
    if _has_data():
        warn(
            "stdin is a pipe that no task reads; --stdin - hands it to each task, "
            "--each-line - makes a task of each line"
        )


def is_piped_to() -> bool:
    """Does a program write to our stdin, or could it?"""
    try:
        return stat.S_ISFIFO(os.fstat(0).st_mode)
    except OSError:  # it is closed
        return False


def _has_data() -> bool:
    if not is_piped_to():
        return False
    poll = select.poll()
    poll.register(0, select.POLLIN)
    return any(found & select.POLLIN for _, found in poll.poll(0))
