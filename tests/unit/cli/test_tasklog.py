"""Output of several tasks: whole lines, each after its task, and memory for one long line at most."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable

import pytest

from jobyard.cli.output.tasklog import LINE_BYTES_MOST, MarkedLog, MergedLog
from jobyard.wire.views import LogChunk

PIECE = "x" * (1 << 16)


class CountingBuffer(io.BytesIO):
    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.largest = max(self.largest, len(data))
        return super().write(data)


@pytest.fixture
def screen() -> CountingBuffer:
    return CountingBuffer()


def a_log(screen: CountingBuffer) -> MergedLog:
    # Patched here and not in a fixture: pytest has an stdout of its own for each phase of a test.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stdout", io.TextIOWrapper(screen))
        return MergedLog()


def shown(screen: CountingBuffer, chunks: Iterable[tuple[str, str]]) -> str:
    log = a_log(screen)
    for task, data in chunks:
        log.write(LogChunk(task, 1, "out", data))
    log.close()
    return screen.getvalue().decode()


def test_lines_come_whole_and_after_their_task(screen: CountingBuffer) -> None:
    chunks = [("a", "one\ntw"), ("b", "B"), ("a", "o\n"), ("b", "B\n\n"), ("a", "end")]
    told = shown(screen, chunks)
    assert told == "a| one\na| two\nb| BB\nb| \na| end\n"


def test_colours_of_tasks_are_left_out_where_asked(screen: CountingBuffer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountingBuffer, "isatty", lambda self: True)
    assert "\x1b[" in shown(screen, [("a", "one\n")])
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in shown(CountingBuffer(), [("a", "one\n")])


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_progress_bar_does_not_hide_whose_line_it_is(
    screen: CountingBuffer, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr(CountingBuffer, "isatty", lambda self: is_terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    told = shown(screen, [("a", "\r 10%\r 20%"), ("b", "one\r\n"), ("a", "\r 30%\n")])
    assert told == ("b| one\na|  30%\n" if is_terminal else "b| one\r\na| \r 10%\r 20%\r 30%\n")


def test_an_attempt_ends_its_lines_before_the_next_one_begins(
    screen: CountingBuffer, capsys: pytest.CaptureFixture[str]
) -> None:
    log = MarkedLog(a_log(screen))
    for attempt, data in ((1, "half"), (2, "again\n"), (2, "rest")):
        log.write(LogChunk("a", attempt, "out", data))
    assert screen.getvalue() == b"a| half\na| again\n"
    log.close()
    assert screen.getvalue() == b"a| half\na| again\na| rest\n"
    assert capsys.readouterr().err == "yard: attempt 2 of task a begins\n"


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_each_byte_of_a_long_line_is_handled_once(screen: CountingBuffer, size: int) -> None:
    """Two lines, in ever more pieces: what is kept and what is written in one go does not grow with the line."""
    pieces = 40 if size > 7 else 2000
    line = [("a", "x" * size)] * pieces + [("a", "\n")]
    other = [("b", "y" * size)] * pieces
    is_whole = shown(screen, line + other) == f"a| {'x' * size * pieces}\nb| {'y' * size * pieces}\n"
    assert is_whole  # not compared in the assert: pytest would print megabytes
    assert screen.largest <= LINE_BYTES_MOST + 2 * len(PIECE)


def test_a_log_keeps_no_more_of_a_line_than_its_bound(screen: CountingBuffer) -> None:
    log = a_log(screen)
    for _ in range(3 * LINE_BYTES_MOST // len(PIECE)):
        log.write(LogChunk("a", 1, "out", PIECE))
        assert sum(map(len, log._unfinished.values())) <= LINE_BYTES_MOST
    log.close()
    assert len(screen.getvalue()) == 3 * LINE_BYTES_MOST + len("a| \n")


def test_a_long_line_that_another_task_cuts_goes_on_after_its_task(screen: CountingBuffer) -> None:
    long = PIECE * (LINE_BYTES_MOST // len(PIECE) + 1)
    told = shown(screen, [("a", long), ("b", "B\n"), ("a", "end\nnext\n")])
    assert told.replace(long, "LONG") == "a| LONG\nb| B\na| end\na| next\n"
