from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click
import pytest
from rich.console import Console
from tests.unit.client.views import a_failure, a_job_view

from jobyard.cli.output.harmless import harmless
from jobyard.cli.output.live import LiveDisplay, Rate
from jobyard.cli.output.picture import Picture, bar
from jobyard.cli.output.plain import BarDisplay, PlainDisplay
from jobyard.cli.output.table import print_fields, print_table
from jobyard.cli.output.text import shortened, width
from jobyard.model.job import State
from jobyard.wire.views import Counts, TaskView, TrainingView

HALF = Counts(total=100, succeeded=45, failed=5, running=8, pending=42)


def drawn(picture: Picture, columns: int = 100) -> str:
    console = Console(file=io.StringIO(), width=columns, force_terminal=False)
    with console.capture() as capture:
        console.print(picture)
    return capture.get()


def test_the_live_display_shows_progress_rate_eta_and_failures() -> None:
    view = a_job_view(counts=HALF, first_failure=a_failure(), eta_seconds=25.0)
    shown = drawn(Picture(view, rate=2.0))
    for text in (
        "train",
        "job 1",
        "50/100 50%",
        "8 running",
        "5 failed",
        "2.0/s",
        "eta 25s",
        "ValueError: no such file",
    ):
        assert text in shown


def test_the_live_display_says_why_nothing_runs() -> None:
    view = a_job_view(State.PENDING, counts=Counts(total=2, pending=2), message="needs 2 GPUs")
    assert "waiting: needs 2 GPUs" in drawn(Picture(view, 0.0))
    assert "waiting" not in drawn(Picture(a_job_view(counts=HALF, message="needs 2 GPUs"), 0.0))


@pytest.mark.parametrize("columns", [20, 40, 200])
def test_the_live_display_fits_every_terminal(columns: int) -> None:
    view = a_job_view(counts=HALF, name="n" * 300, first_failure=a_failure())
    assert all(len(line) <= columns for line in drawn(Picture(view, 1.0), columns).splitlines())


def a_running_task(number: int, **changes: Any) -> TaskView:
    task = TaskView(number, str(number), State.RUNNING, 1, started_at=1.0, command=f"fold {number}", last_line="loss 1")
    return replace(task, **changes)


def test_the_live_view_has_failures_first_and_then_what_runs() -> None:
    failed = [a_failure("7").task, replace(a_failure("9").task, number=9, command="fold 9")]
    view = a_job_view(counts=HALF, first_failure=a_failure("7", command="fold 7"))
    tasks = [a_running_task(11), a_running_task(12, last_line="\x1b[2J50%")]
    lines = drawn(Picture(view, 0.0, tasks, failed, "q leaves")).splitlines()
    assert "first failure: task 7 on here, exit code 3" in lines[2]
    assert [line.split()[-2:] for line in lines[3:4]] == [["fold", "7"]]
    assert lines[6] == "task 9, exit code 3  $ fold 9"
    assert ["fold 11" in lines[7], "loss 1" in lines[7], lines[8][-3:]] == [True, True, "50%"]
    assert lines[9:] == ["  and 6 more", "q leaves"]


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 160])
@pytest.mark.parametrize("rows", [5, 8, 24])
def test_the_live_view_fits_every_terminal(columns: int, rows: int) -> None:
    tasks = [a_running_task(number, command="c" * 300, last_line="l" * 300) for number in range(50)]
    view = a_job_view(counts=HALF, name="n" * 300, first_failure=a_failure())
    console = Console(file=io.StringIO(), width=columns, height=rows, force_terminal=False)
    with console.capture() as capture:
        console.print(Picture(view, 1.0, tasks, (), "q leaves, c cancels"))
    lines = capture.get().splitlines()
    assert len(lines) < rows
    assert all(len(line) <= columns for line in lines)
    assert lines[-1].startswith("q leaves")


def test_a_terminal_that_became_narrower_keeps_no_lines_of_the_last_frame() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, height=24)
    display = LiveDisplay(console)
    display.submitted(a_job_view(counts=HALF))
    console.print(display._draw())
    before = len(stream.getvalue())
    console.width = 35  # the bar's line of 79 columns has two more lines now, the first has none
    console.print(display._draw())
    assert stream.getvalue()[before:].startswith("\x1b[1A\x1b[2K" * 2 + "\x1b[1mtrain")


def test_a_gang_that_trains_shows_its_epochs() -> None:
    training = TrainingView(epochs_done=3, epochs_total=10, eta_seconds=90.0)
    assert "epoch 3/10  eta 1m30s" in drawn(Picture(a_job_view(counts=HALF, training=training), 0.0))
    assert "epoch" not in drawn(Picture(a_job_view(counts=HALF, training=TrainingView()), 0.0))


def test_the_bar_is_full_exactly_at_the_end() -> None:
    assert bar(Counts(total=3, succeeded=3), 30).plain == "━" * 30
    assert len(bar(HALF, 30).plain) == 30
    assert "─" in bar(Counts(total=1000, succeeded=999, pending=1), 10).plain


def test_the_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()
    for second in range(100):
        rate.add(float(second), 0 if second < 50 else (second - 50) * 4)
    assert rate.per_second(99.0) == pytest.approx(4.0)


def test_the_live_display_leaves_the_terminal_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    with LiveDisplay(Console(file=stream, force_terminal=True, width=80)) as display:
        display.submitted(a_job_view(counts=HALF))
        display.say("cancelling")
    display.summary(a_job_view(State.FAILED, counts=HALF))
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")
    assert "cancelling" in stream.getvalue()
    assert "failed" in capsys.readouterr().err


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_plain_progress_is_said_at_each_tenth_and_after_some_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    display = PlainDisplay(progress_seconds=5, is_streamed=False, clock=clock)
    display.submitted(a_job_view(State.PENDING, counts=Counts(total=1000, pending=1000)))
    for finished in range(1, 301):
        display.update(a_job_view(counts=Counts(total=1000, succeeded=finished, running=2)))
    lines = capsys.readouterr().err.splitlines()[1:]
    assert [line.split()[1] for line in lines] == ["100/1000", "200/1000", "300/1000"]
    display.update(a_job_view(counts=Counts(total=1000, succeeded=301, running=2)))
    clock.now += 6
    display.tick()
    assert capsys.readouterr().err == "yard: 301/1000 done, 2 running\n"


def test_waiting_is_said_only_after_a_moment_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    display = PlainDisplay(progress_seconds=5, is_streamed=True, clock=clock)
    display.update(a_job_view(State.PENDING, message="needs 2 GPUs"))
    assert capsys.readouterr().err == ""
    clock.now += 2
    display.tick()
    display.tick()
    assert capsys.readouterr().err == "yard: waiting: needs 2 GPUs\n"


def test_the_first_failure_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay(progress_seconds=5, is_streamed=False)
    for _ in range(2):
        display.update(a_job_view(counts=HALF, first_failure=a_failure()))
    assert capsys.readouterr().err.count("first failure") == 1
    display.summary(a_job_view(State.FAILED, counts=HALF, first_failure=a_failure()))
    assert "first failure" not in capsys.readouterr().err, "it stands in the line above"


def test_a_failure_that_was_said_long_before_is_named_once_more_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    display = PlainDisplay(progress_seconds=5, is_streamed=False, clock=clock)
    display.update(a_job_view(counts=HALF, first_failure=a_failure()))
    assert "ValueError: no such file" in capsys.readouterr().err
    for succeeded in range(50, 60):
        clock.now += 9
        counts = Counts(total=100, succeeded=succeeded, failed=5, running=35)
        display.update(a_job_view(counts=counts, first_failure=a_failure()))
    assert capsys.readouterr().err.count("\n") >= 10
    display.summary(a_job_view(State.FAILED, counts=HALF, first_failure=a_failure()))
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if "first failure: task 7" in line]) == 1
    assert not any("ValueError" in line for line in lines), "its output stands above"


def test_a_failure_that_ends_the_job_is_said_by_the_summary_alone(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay(progress_seconds=5, is_streamed=False)
    ended = a_job_view(State.FAILED, counts=HALF, first_failure=a_failure())
    display.update(ended)
    display.summary(ended)
    said = capsys.readouterr().err
    assert (said.count("first failure"), said.count("ValueError")) == (1, 1)


def test_text_of_a_job_cannot_steer_the_terminal() -> None:
    assert harmless("a\x1b[2Jb\x1b]0;title\x07c\td\ne\x9b2Jf") == "abc d ef"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes stdout a terminal of so many columns."""

    def with_columns(columns: int) -> None:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(columns))

    return with_columns


def test_a_narrow_terminal_does_without_spare_columns_and_a_pipe_has_all(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    def headers_shown() -> str:
        print_table(("A", "B", "WHAT"), [("a" * 20, "b" * 20, "w" * 90)], spare=("B",))
        lines = click.unstyle(capsys.readouterr().out).splitlines()
        assert all(len(line) <= columns for line in lines)
        return " ".join(lines[0].split())

    columns = 1000
    assert headers_shown() == "A B WHAT"
    for columns, expected in ((160, "A B WHAT"), (60, "A B WHAT"), (40, "A WHAT")):
        terminal(columns)
        assert headers_shown() == expected


def test_a_terminal_has_long_fields_between_its_edges(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    terminal(40)
    print_fields([("name", "x"), ("message", "one two three four five six seven eight nine ten")])
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert lines[2] == "         seven eight nine ten"


def test_wide_characters_keep_the_columns_straight(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "N"), [("訓練", "1"), ("ab", "2")])
    assert capsys.readouterr().out == "NAME  N\n訓練  1\nab    2\n"
    assert width("訓練") == 4
    assert shortened("訓練中", 5) == "訓練…"


def test_a_bar_beside_output_writes_over_itself_and_goes_before_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    display = BarDisplay(progress_seconds=60.0, is_terminal=True)
    display.submitted(a_job_view(State.PENDING, counts=Counts(total=100, pending=100)))
    display.update(a_job_view(counts=HALF, eta_seconds=25.0))
    display.tick()
    display.update(a_job_view(State.SUCCEEDED, counts=Counts(total=100, succeeded=100)))
    display.summary(a_job_view(State.SUCCEEDED, counts=Counts(total=100, succeeded=100)))
    shown = capsys.readouterr().err.split("\r\033[K")
    assert shown[1:-1] == ["##########---------- 50% 50/100 done, 8 running, 5 failed, eta 25s"]
    assert shown[-1].startswith("yard: job 1 (train) succeeded")


def test_while_nothing_runs_there_is_a_reason_and_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([1.0, 3.0])
    display = BarDisplay(progress_seconds=60.0, is_terminal=True, clock=lambda: next(times))
    for _ in range(2):
        display.update(a_job_view(State.PENDING, counts=Counts(total=2, pending=2), message="needs 2 GPUs"))
    assert capsys.readouterr().err == "yard: waiting: needs 2 GPUs\n"


def test_a_bar_without_a_terminal_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    display = BarDisplay(progress_seconds=60.0, is_terminal=False)
    display.update(a_job_view(counts=HALF))
    display.update(a_job_view(counts=HALF))
    assert capsys.readouterr().err == "yard: 50/100 done, 8 running, 5 failed\n"
