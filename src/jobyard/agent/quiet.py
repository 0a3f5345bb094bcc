"""Quiet directories: is nobody writing a checkpoint at this moment?

A task that tells nothing is ended by a signal, and what it was writing then is half a checkpoint.
"""

from __future__ import annotations

import os
import time
from typing import Iterator, List, Sequence, Tuple

from jobyard.agent import clock

QUIET_SECONDS = 2.0  # between two files of a checkpoint a trainer is silent for less
LOOK_SECONDS = 0.25
_ENTRIES_MOST = 20000  # of more, only these are looked at: each look takes a while

Seen = Tuple[int, int, int]


class Quiet:
    """Watches directories. Asked every moment, it knows since when nothing in them has changed."""

    def __init__(self, directories: Sequence[str]) -> None:
        self._directories = directories
        self._seen = _look(directories)
        newest = self._seen[1] / 1e9
        age = time.time() - newest
        # Of a change that lies in the future, by the clock of another machine, nothing is known yet.
        self._since = clock.seconds() - max(0.0, age)

    def is_quiet(self) -> bool:
        seen, now = _look(self._directories), clock.seconds()
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since >= QUIET_SECONDS


def _look(directories: Sequence[str]) -> Seen:
    """How many entries, how large together, and when the last one changed."""
    count = size = newest = 0
    for entry in _entries(list(directories)):
        count += 1
        size += entry.st_size
        newest = max(newest, entry.st_mtime_ns)
        if count >= _ENTRIES_MOST:
            break
    return count, newest, size


def _entries(directories: List[str]) -> Iterator[os.stat_result]:
    while directories:
        try:
            with os.scandir(directories.pop()) as found:
                for entry in found:
                    yield entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.path)
        except OSError:
            continue  # there is none, or an old one is being removed
