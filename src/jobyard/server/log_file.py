"""Log file of the server: how does it stay small, however often something happens? By rotation and a rate limit.

Standard output and error are the file itself, so that the last words of a crash are in it too; when it is full they are
moved to a new one.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOG_BYTES_MOST = 5_000_000  # of one file: a year of a quiet yard, an hour of one in trouble
GENERATIONS = 3  # older files that are kept: server.log.1 is the newest of them
ALIKE_MOST = 20  # records of one kind within a minute: enough to see what goes on
MINUTE_SECONDS = 60.0
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_stderr(path: Path) -> None:
    """All records go to standard error; where that is the file at `path`, it is a new one whenever it is full."""
    handler = _Rotating(path)
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(Alike(time.monotonic))
    logging.basicConfig(handlers=[handler], level=logging.INFO)


def open_log(path: Path) -> int:
    """A descriptor that appends to the file; a full one is set aside first. Raises OSError."""
    with suppress(FileNotFoundError):
        if path.stat().st_size > LOG_BYTES_MOST:
            _set_aside(path)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _set_aside(path: Path) -> None:
    for age in range(GENERATIONS, 0, -1):
        younger = path.with_name(f"{path.name}.{age - 1}") if age > 1 else path
        with suppress(FileNotFoundError):
            younger.replace(path.with_name(f"{path.name}.{age}"))


class _Rotating(logging.StreamHandler):  # type: ignore[type-arg]
    def __init__(self, path: Path) -> None:
        super().__init__(sys.stderr)
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        with suppress(OSError):  # a full disk must not take the server down
            if self._is_full():
                fresh = open_log(self._path)
                for descriptor in (1, 2):
                    os.dup2(fresh, descriptor)
                os.close(fresh)

    def _is_full(self) -> bool:
        """Whether it is our file and is full. In a terminal, under systemd or in a pod others store the log."""
        ours = os.fstat(2)
        if ours.st_size <= LOG_BYTES_MOST:
            return False
        named = os.stat(self._path)
        return (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino)


@dataclass
class _Kind:
    since: float
    count: int = 0


class Alike(logging.Filter):
    """Rate limit for records of one kind. The kind is the sentence before its values are filled in."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, int, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key, now = (record.name, record.levelno, str(record.msg)), self._clock()
        kind = self._kinds.get(key)
        if kind is None or now - kind.since >= MINUTE_SECONDS:
            left_out = kind.count - ALIKE_MOST if kind else 0
            kind = self._kinds[key] = _Kind(now)
            if left_out > 0:
                _add(record, f"({left_out} more like it were left out before)")
            self._forget(now)
        kind.count += 1
        if kind.count == ALIKE_MOST:
            _add(record, "(more like it are left out for a minute)")
        return kind.count <= ALIKE_MOST

    def _forget(self, now: float) -> None:
        """Drop old kinds: sentences that are formatted before logging are one kind each, and must not add up."""
        if len(self._kinds) > 1000:
            self._kinds = {key: kind for key, kind in self._kinds.items() if now - kind.since < MINUTE_SECONDS}


def _add(record: logging.LogRecord, words: str) -> None:
    record.msg, record.args = f"{record.getMessage()} {words}", ()
