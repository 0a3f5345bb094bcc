"""The live view where there is little room: what stays in sight on few columns, on few rows, and without a terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from tests.unit.client.views import a_failure, a_job_view

from jobyard.cli.output import text
from jobyard.cli.output.harmless import shown_lines
from jobyard.cli.output.live import LiveDisplay
from jobyard.cli.output.picture import Picture, told_apart
from jobyard.cli.output.plain import BarDisplay
from jobyard.cli.output.resizing import LinesOnScreen
from jobyard.cli.output.tasklog import DirectLog
from jobyard.cli.output.text import shortened, width
from jobyard.model.job import State
from jobyard.wire.views import Counts, JobView, LogChunk, TaskView

HALF = Counts(total=100, succeeded=45, failed=5, running=8, pending=42)
QUESTION = "y cancels job 1 (train), any other key does not"


def drawn(picture: Picture, columns: int = 100, rows: int = 25) -> list[str]:
    console = Console(file=io.StringIO(), width=columns, height=rows, force_terminal=False)
    with console.capture() as capture:
        console.print(picture)
    return capture.get().splitlines()


def a_job(**changes: Any) -> JobView:
    return a_job_view(**{"counts": HALF, **changes})


def a_task(number: int, **changes: Any) -> TaskView:
    return replace(TaskView(number, str(number), State.RUNNING, 1, started_at=1.0, last_line="loss 1"), **changes)


@pytest.mark.parametrize(("rows", "seen"), [(1, ["50/100"]), (2, ["50/100"]), (3, ["50/100", "q leaves"])])
def test_a_window_of_few_rows_has_how_far_it_is(rows: int, seen: list[str]) -> None:
    lines = drawn(Picture(a_job(first_failure=a_failure()), 1.0, [a_task(1)], (), "q leaves"), rows=rows)
    assert len(lines) == len(seen)
    assert all(part in line for part, line in zip(seen, lines, strict=True))


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 24])
def test_a_question_is_seen_in_every_window(rows: int) -> None:
    tasks = [a_task(number) for number in range(9)]
    lines = drawn(Picture(a_job(first_failure=a_failure()), 1.0, tasks, (), "q leaves", QUESTION), rows=rows)
    assert lines[-1] == QUESTION
    assert "q leaves" not in "".join(lines)
    assert len(lines) <= max(1, rows - 1)


@pytest.mark.parametrize("name", ["n" * 300, "訓練" * 100])
def test_a_long_name_leaves_room_for_the_state(name: str) -> None:
    head = drawn(Picture(a_job(name=name), 0.0), 40)[0]
    assert "…  job 1  running  " in head
    assert width(head) <= 40


def test_a_narrow_terminal_has_whole_numbers_and_a_bar() -> None:
    view = a_job(eta_seconds=25.0)
    assert drawn(Picture(view, 2.0), 40)[1].lstrip("━╸─") == " 50/100 50%  5 failed  eta 25s"
    assert drawn(Picture(view, 2.0), 30)[1].lstrip("━╸─") == " 50/100 50%  5 failed"
    assert drawn(Picture(view, 2.0), 60)[1].lstrip("━╸─") == " 50/100 50%  8 running  5 failed  eta 25s  2.0/s"


def test_why_a_job_waits_is_read_to_its_end_on_a_narrow_terminal() -> None:
    message = "needs 4 GPUs with 40 GiB each; the largest node, here, has 2 with 24 GiB"
    view = a_job(state=State.PENDING, counts=Counts(total=2, pending=2), message=message)
    assert drawn(Picture(view, 0.0), 40)[2:] == [
        "waiting: needs 4 GPUs with 40 GiB each;",
        "  the largest node, here, has 2 with 24",
        "  GiB",
    ]


def test_other_failures_come_before_the_output_of_the_first() -> None:
    failure = replace(a_failure(command="fold 7"), last_lines=tuple(f"line {number}" for number in range(10)))
    others = [replace(failure.task, number=number, label=str(number)) for number in (8, 9)]
    lines = drawn(Picture(a_job(first_failure=failure), 0.0, (), others), rows=8)
    assert [line.strip() for line in lines[3:]] == ["$ fold 7", "line 9", *drawn_failures(others)]
    assert len(drawn(Picture(a_job(first_failure=failure), 0.0, (), others), rows=7)) == 6


def drawn_failures(tasks: list[TaskView]) -> list[str]:
    return [f"task {task.label}, exit code 3  $ fold 7" for task in tasks]


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (36, ["python train.py --lr 0.1 --seed 1", "python train.py --lr 0.1 --seed 22"]),
        (20, ["… 1 ", "… 22"]),
        (3, ["… 1", "… …"]),
    ],
)
def test_commands_that_do_not_fit_are_told_apart_by_their_ends(columns: int, shown: list[str]) -> None:
    commands = ["python train.py --lr 0.1 --seed 1", "python train.py --lr 0.1 --seed 22"]
    assert [each.rstrip() for each in told_apart(commands, columns)] == [each.rstrip() for each in shown]
    assert len({width(each) for each in told_apart(commands, columns)}) == 1
    assert told_apart(commands[:1], 10) == ["python tr…"]
    assert told_apart(["same", "same"], 3) == ["sa…", "sa…"]


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_each_running_task_is_known_by_its_command(columns: int) -> None:
    tasks = [a_task(number, command=f"python sweep.py --lr 0.001 --seed {number}") for number in range(3)]
    lines = drawn(Picture(a_job(), 0.0, tasks), columns)[2:5]
    assert all(f"{number}  loss 1" in line for number, line in enumerate(lines))


def test_a_server_that_does_not_answer_is_told_of_until_it_does() -> None:
    stream = io.StringIO()
    display = LiveDisplay(Console(file=stream, force_terminal=False, width=80))
    display.submitted(a_job())
    for seconds, is_told in ((12.0, True), (0.0, False)):
        display.lost(seconds)
        assert ("the server has not answered for 12s; trying again" in "".join(drawn(_frame(display)))) is is_told


def _frame(display: LiveDisplay) -> Picture:
    picture = display._draw().picture
    assert isinstance(picture, Picture)
    return picture


def test_a_lower_terminal_gives_back_the_lines_that_it_took_out_of_sight() -> None:
    lines = LinesOnScreen()
    lines.drawn([30, 79, 20, 20, 10], rows=24)
    assert lines.resized(80, 3) == 0  # two are out of sight
    lines.drawn([79, 10], rows=3)
    assert lines.resized(80, 4) == 1
    lines.drawn([30, 79, 10], rows=4)
    assert lines.resized(40, 24) == 1 + 1, "the line of 79 columns is folded, and one comes back"
    lines.drawn([30, 40], rows=24)
    assert lines.resized(80, 30) == 0


def test_what_was_printed_since_is_not_taken_away_with_the_lines_above() -> None:
    lines = LinesOnScreen()
    lines.drawn([30] * 9, rows=24)
    lines.resized(80, 5)
    lines.drawn([30] * 4, rows=5)
    lines.forget_above()
    assert lines.resized(80, 24) == 0


@pytest.mark.parametrize(
    ("shown", "columns"),
    [("訓練", 4), ("e\u0301", 1), ("ก็ดี", 2), ("नमस्ते", 4), ("한글", 4), ("a⃝", 1)],
)
def test_marks_above_and_below_a_letter_take_no_column(shown: str, columns: int) -> None:
    assert width(shown) == columns
    assert shortened(shown, columns) == shown


@pytest.mark.parametrize("columns", range(8))
def test_what_is_shortened_is_never_wider(columns: int) -> None:
    for whole in ("訓練中訓練中", "e\u0301" * 9, "a訓b練c", "abcdefghi"):
        assert width(shortened(whole, columns)) <= max(1, columns)


def test_of_a_long_text_only_the_beginning_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([2] * 20)  # the width of each: it runs out where more is looked at
    monkeypatch.setattr(text, "_columns", lambda character: next(looks))
    assert shortened("訓" * 100_000, 9) == "訓訓訓訓…"


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\r\nb", ["a", "b"]),
        (" 10%\r 20%\r", [" 20%"]),
        ("\r 10%\r 20%\ndone\n", [" 20%", "done"]),
        ("a\tb\x1b[2Jc\n", ["a       bc"]),
        ("", []),
        ("\n", [""]),
    ],
)
def test_output_is_shown_as_a_terminal_had_it_at_last(written: str, lines: list[str]) -> None:
    assert shown_lines(written) == lines


class Terminal(io.TextIOWrapper):
    """stdout and stderr of a program on a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def written(self) -> str:
        content: bytes = self.buffer.getvalue()  # type: ignore[attr-defined]
        return content.decode().replace("\x1b[0m", "")


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, stdout: io.TextIOWrapper | None = None) -> Terminal:
    """Called by the test itself: pytest has an stdout of its own for each phase of a test."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", stdout or terminal)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    return terminal


def test_a_bar_gives_way_to_output_and_to_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    log = DirectLog()
    display = BarDisplay(progress_seconds=60.0, is_terminal=True, log=log)
    display.update(a_job())
    for data in ("half", " a line\n"):
        display.output_follows()
        log.write(LogChunk("1", 1, "out", data))
        display.tick()
    display.say("cancelling")
    bar = "\r\x1b[K##########---------- 50% 50/100 done, …"
    assert terminal.written == f"{bar}\r\x1b[Khalf a line\n{bar}\r\x1b[Kyard: cancelling\n"
    assert width(bar.removeprefix("\r\x1b[K")) < 40, "a line that wraps could not be written over"


def test_what_is_said_after_output_without_an_end_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    log = DirectLog()
    display = BarDisplay(progress_seconds=60.0, is_terminal=True, log=log)
    log.write(LogChunk("1", 1, "out", "no newline"))
    display.say("cancelling")
    display.say("it goes on")
    assert terminal.written == "no newline\nyard: cancelling\nyard: it goes on\n"


def test_a_pipe_gets_no_line_end_that_no_task_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.TextIOWrapper(io.BytesIO(), write_through=True)
    terminal = on_a_terminal(monkeypatch, pipe)
    log = DirectLog()
    log.write(LogChunk("1", 1, "out", "no newline"))
    log.end_line()
    assert (pipe.buffer.getvalue(), terminal.written) == (b"no newline", "")
