"""Quiet directories: is nobody writing a checkpoint at this moment?

A task that tells nothing is ended by a signal, and what it was writing then is half a checkpoint.
"""

from __future__ import annotations

import os
import time
from typing import Iterator, List, Optional, Sequence, Tuple

from jobyard.agent_protocol import clock

QUIET_SECONDS = 2.0  # between two files of a checkpoint a trainer is silent for less
LOOK_SECONDS = 0.25
_SHARE = 20  # of our time goes into looking at most: one part of so many
_ENTRIES_MOST = 20000  # with more, or after so long a look, nobody knows whether something changes
_SECONDS_MOST = 1.0

Seen = Tuple[int, int, int]


class Quiet:
    """Watches directories. Asked after each `pause`, it knows since when nothing in them has changed."""

    def __init__(self, directories: Sequence[str]) -> None:
        self._directories = directories
        self.pause = LOOK_SECONDS
        self._seen = self._look()
        # Of a change that lies in the future, by the clock of another machine, nothing is known yet.
        age = max(0.0, time.time() - self._seen[1] / 1e9) if self._seen else 0.0
        self._since = clock.seconds() - age

    def is_quiet(self) -> bool:
        seen, now = self._look(), clock.seconds()
        if seen is None or seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since >= QUIET_SECONDS

    def _look(self) -> Optional[Seen]:
        begin = clock.seconds()
        seen = _look(self._directories, begin + _SECONDS_MOST)
        self.pause = max(LOOK_SECONDS, _SHARE * (clock.seconds() - begin))
        return seen


def _look(directories: Sequence[str], until: float) -> Optional[Seen]:
    """How many entries, how large together, and when the last one changed. None: too many to look at."""
    count = size = newest = 0
    for entry in _entries(list(directories)):
        count += 1
        size += entry.st_size
        newest = max(newest, entry.st_mtime_ns)
        if count > _ENTRIES_MOST or clock.seconds() > until:
            return None
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
