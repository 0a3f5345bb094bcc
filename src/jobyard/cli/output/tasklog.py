"""How is the output of tasks shown? One task as it is; several merged, each line with its task before it."""

from __future__ import annotations

import sys
from typing import BinaryIO, Protocol

import click

from jobyard.wire.views import LogChunk

COLOURS = ("cyan", "green", "yellow", "blue", "magenta", "bright_cyan", "bright_green", "bright_yellow", "bright_blue")


class LogWriter(Protocol):
    def write(self, chunk: LogChunk) -> None: ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class DirectLog:
    """As if the task ran here: its stdout to ours, its stderr to ours (or both to stderr, where stdout is for JSON)."""

    def __init__(self, *, all_to_stderr: bool = False) -> None:
        self._all_to_stderr = all_to_stderr

    def write(self, chunk: LogChunk) -> None:
        to_stderr = self._all_to_stderr or chunk.stream == "err"
        _write((sys.stderr if to_stderr else sys.stdout).buffer, bytes_of(chunk.data))

    def close(self) -> None: ...


class MergedLog:
    """All on stdout (or stderr), whole lines with `label| ` before them; a colour for each task on a terminal."""

    def __init__(self, to_stderr: bool = False) -> None:
        self._stream = sys.stderr if to_stderr else sys.stdout
        self._is_coloured = self._stream.isatty()
        self._unfinished: dict[tuple[str, int, str], bytes] = {}

    def write(self, chunk: LogChunk) -> None:
        key = (chunk.task, chunk.attempt, chunk.stream)
        *lines, rest = (self._unfinished.pop(key, b"") + bytes_of(chunk.data)).split(b"\n")
        if rest:
            self._unfinished[key] = rest
        if lines:
            prefix = self._prefix(chunk.task)
            _write(self._stream.buffer, b"".join(prefix + line + b"\n" for line in lines))

    def close(self) -> None:
        for (task, _, _), rest in self._unfinished.items():
            _write(self._stream.buffer, self._prefix(task) + rest + b"\n")
        self._unfinished.clear()

    def _prefix(self, task: str) -> bytes:
        text = f"{task}| "
        # Not hash(): a task keeps its colour from one call to the next.
        return (
            click.style(text, fg=COLOURS[sum(task.encode()) % len(COLOURS)]) if self._is_coloured else text
        ).encode()


def bytes_of(data: str) -> bytes:
    """The bytes a task wrote: those that are no UTF-8 may have crossed the wire as lone surrogates."""
    try:
        return data.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return data.encode("utf-8", "replace")


def write_bytes(data: bytes, *, to_stderr: bool = False) -> None:
    _write((sys.stderr if to_stderr else sys.stdout).buffer, data)


def _write(stream: BinaryIO, data: bytes) -> None:
    stream.write(data)
    stream.flush()
