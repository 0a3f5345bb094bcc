"""Task output: how are logs shown? One task as it is; several merged, each line with its task before it."""

from __future__ import annotations

import sys
import time
from typing import BinaryIO, Protocol

import click

from jobyard.cli.output.harmless import harmless
from jobyard.cli.output.text import has_colours, say
from jobyard.wire.views import LogChunk

COLOURS = ("cyan", "green", "yellow", "blue", "magenta", "bright_cyan", "bright_green", "bright_yellow", "bright_blue")


STREAMS = ("out", "err")
LINE_BYTES_MOST = 1 << 20  # of one line that is kept until it is whole
Source = tuple[str, int, str]  # task, attempt, stream


class LogWriter(Protocol):
    @property
    def is_line_open(self) -> bool:
        """Does the terminal's last line have output whose end did not come yet?"""
        ...

    def write(self, chunk: LogChunk) -> None: ...

    def end_line(self) -> None:
        """On a terminal what is said next begins a line; other outputs get only what the tasks wrote."""
        ...

    def next_attempt(self, chunk: LogChunk) -> None:
        """It is the first of its attempt: nothing more comes of the one before."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class DirectLog:
    """As if the task ran here: its stdout to ours, its stderr to ours (or both to stderr, where stdout is for JSON)."""

    def __init__(self, *, all_to_stderr: bool = False) -> None:
        self._all_to_stderr = all_to_stderr
        self._is_line_open = False

    @property
    def is_line_open(self) -> bool:
        return self._is_line_open

    def write(self, chunk: LogChunk) -> None:
        stream = sys.stderr if self._all_to_stderr or chunk.stream == "err" else sys.stdout
        _write(stream.buffer, bytes_of(chunk.data))
        if chunk.data and stream.isatty():
            self._is_line_open = not chunk.data.endswith("\n")

    def end_line(self) -> None:
        if self._is_line_open and sys.stderr.isatty():
            _write(sys.stderr.buffer, b"\n")
        self._is_line_open = False

    def next_attempt(self, chunk: LogChunk) -> None:
        self.end_line()

    def close(self) -> None: ...


class MergedLog:
    """All on stdout (or stderr), whole lines; before each `label| `, with a colour for each task on a terminal.

    A line that is longer than `LINE_BYTES_MOST` is not kept until it is whole: its beginning is written, and it goes on
    there, or on a line of its own if another task wrote meanwhile. Of a line that was written over (a progress bar) a
    terminal gets what stood there at last: the rest would hide whose line it is.
    """

    def __init__(self, to_stderr: bool = False, *, names_tasks: bool = True, has_times: bool = False) -> None:
        self._stream = sys.stderr if to_stderr else sys.stdout
        self._is_coloured = has_colours(self._stream)
        self._is_terminal = self._stream.isatty()
        self._names_tasks = names_tasks
        self._has_times = has_times
        self._unfinished: dict[Source, bytearray] = {}
        self._open: Source | None = None  # the source of the unfinished line on the screen

    @property
    def is_line_open(self) -> bool:
        return self._open is not None

    def write(self, chunk: LogChunk) -> None:
        source = (chunk.task, chunk.attempt, chunk.stream)
        whole, newline, rest = bytes_of(chunk.data).rpartition(b"\n")
        if newline:
            self._write_lines(source, self._unfinished.pop(source, bytearray()) + whole + newline, chunk.at)
        if rest:
            # Appended, and joined once: a line of 50 MB comes in 800 pieces.
            held = self._unfinished.setdefault(source, bytearray())
            held += rest
            if len(held) > LINE_BYTES_MOST:
                self._write_lines(source, self._unfinished.pop(source), chunk.at)

    def next_attempt(self, chunk: LogChunk) -> None:
        for stream in STREAMS:
            source = (chunk.task, chunk.attempt - 1, stream)
            if rest := self._unfinished.pop(source, None):
                self._write_lines(source, rest + b"\n", None)
        self.end_line()

    def close(self) -> None:
        for source, rest in self._unfinished.items():
            self._write_lines(source, rest + b"\n", None)
        self._unfinished.clear()
        self._end_line()

    def _write_lines(self, source: Source, data: bytearray, at: float | None) -> None:
        """Lines of one source, read at this time; the last one may have no end yet."""
        if self._open != source:
            self._end_line()
        lines = data.split(b"\n")
        last = lines.pop()
        prefix = self._prefix(source[0], at)
        if self._is_terminal:
            lines = [line.rstrip(b"\r").rpartition(b"\r")[2] for line in lines]
        shown = [prefix + line + b"\n" for line in lines] + [prefix + last] * bool(last)
        if self._open == source:
            shown[0] = shown[0].removeprefix(prefix)
        self._open = source if last else None
        _write(self._stream.buffer, b"".join(shown))

    def end_line(self) -> None:
        if self._is_terminal:
            self._end_line()

    def _end_line(self) -> None:
        if self._open is not None:
            self._open = None
            _write(self._stream.buffer, b"\n")

    def _prefix(self, task: str, at: float | None) -> bytes:
        told = f"{_clock_time(at)} " if self._has_times else ""
        if not self._names_tasks:
            return told.encode()
        text = f"{harmless(task)}| "
        # Not hash(): a task keeps its colour from one call to the next.
        name = click.style(text, fg=COLOURS[sum(task.encode()) % len(COLOURS)]) if self._is_coloured else text
        return f"{told}{name}".encode()


class MarkedLog:
    """Says on stderr when the output of a further attempt begins; the rest is the other log's."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._further: dict[str, int] = {}  # the newest attempt of tasks that were tried again

    @property
    def is_line_open(self) -> bool:
        return self._log.is_line_open

    def end_line(self) -> None:
        self._log.end_line()

    def next_attempt(self, chunk: LogChunk) -> None:
        self._log.next_attempt(chunk)

    def write(self, chunk: LogChunk) -> None:
        if chunk.attempt > self._further.get(chunk.task, 1):
            self._further[chunk.task] = chunk.attempt
            self.next_attempt(chunk)
            say(f"attempt {chunk.attempt} of task {chunk.task} begins")
        self._log.write(chunk)

    def close(self) -> None:
        self._log.close()


class DamageNotes:
    """Says on stderr what cannot be read any more, once for all tasks that are in the same part of a pack."""

    def __init__(self) -> None:
        self.told: set[str] = set()

    def note(self, chunk: LogChunk) -> None:
        if chunk.damage and chunk.damage not in self.told:
            self.told.add(chunk.damage)
            say(chunk.damage, fg="red")


def _clock_time(at: float | None) -> str:
    """Of this machine's clock; as wide where the time is not known."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at is not None else f"{'-':19}"


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
