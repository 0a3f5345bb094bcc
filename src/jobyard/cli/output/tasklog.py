"""Task output: how are logs shown? One task as it is; several merged, each line with its task before it."""

from __future__ import annotations

import sys
from typing import BinaryIO, Protocol

import click

from jobyard.cli.output.harmless import harmless
from jobyard.wire.views import LogChunk

COLOURS = ("cyan", "green", "yellow", "blue", "magenta", "bright_cyan", "bright_green", "bright_yellow", "bright_blue")


LINE_BYTES_MOST = 1 << 20  # of one line that is kept until it is whole
Source = tuple[str, int, str]  # task, attempt, stream


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
    """All on stdout (or stderr), whole lines with `label| ` before them; a colour for each task on a terminal.

    A line that is longer than `LINE_BYTES_MOST` is not kept until it is whole: its beginning is written, and it goes on
    there, or on a line of its own if another task wrote meanwhile.
    """

    def __init__(self, to_stderr: bool = False) -> None:
        self._stream = sys.stderr if to_stderr else sys.stdout
        self._is_coloured = self._stream.isatty()
        self._unfinished: dict[Source, bytearray] = {}
        self._open: Source | None = None  # the source of the unfinished line on the screen

    def write(self, chunk: LogChunk) -> None:
        source = (chunk.task, chunk.attempt, chunk.stream)
        whole, newline, rest = bytes_of(chunk.data).rpartition(b"\n")
        if newline:
            self._write_lines(source, self._unfinished.pop(source, bytearray()) + whole + newline)
        if rest:
            # Appended, and joined once: a line of 50 MB comes in 800 pieces.
            held = self._unfinished.setdefault(source, bytearray())
            held += rest
            if len(held) > LINE_BYTES_MOST:
                self._write_lines(source, self._unfinished.pop(source))

    def close(self) -> None:
        for source, rest in self._unfinished.items():
            self._write_lines(source, rest + b"\n")
        self._unfinished.clear()
        self._end_line()

    def _write_lines(self, source: Source, data: bytearray) -> None:
        """Lines of one source; the last one may have no end yet."""
        if self._open != source:
            self._end_line()
        lines = data.split(b"\n")
        last = lines.pop()
        prefix = self._prefix(source[0])
        shown = [prefix + line + b"\n" for line in lines] + [prefix + last] * bool(last)
        if self._open == source:
            shown[0] = shown[0].removeprefix(prefix)
        self._open = source if last else None
        _write(self._stream.buffer, b"".join(shown))

    def _end_line(self) -> None:
        if self._open is not None:
            self._open = None
            _write(self._stream.buffer, b"\n")

    def _prefix(self, task: str) -> bytes:
        text = f"{harmless(task)}| "
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
