"""What do notebooks and terminals show of jobs, and is what comes from outside harmless there?"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from jobyard.model.job import State
from jobyard.python_api.display import JobTable, Progress, TaskTable, html_of_job, progress_text
from jobyard.wire.views import Counts, JobView, TaskView

HOSTILE = "<script>alert(1)</script>\x1b[2J"


def a_view(state: State = State.RUNNING, done: int = 1, total: int = 4, **words: Any) -> JobView:
    counts = Counts(total=total, running=total - done, succeeded=done)
    given: dict[str, Any] = {"name": "train", "command": "python train.py", "message": "", **words}
    return JobView(
        **given,
        id="ab12",
        number=1,
        user="me",
        state=state,
        reason=None,
        priority=0,
        submitted_at=1.0,
        started_at=None,
        finished_at=None,
        counts=counts,
        workdir="/",
        source="function",
        gang=False,
    )


def test_text_from_outside_is_escaped_in_every_table() -> None:
    job = a_view(name=HOSTILE, command=HOSTILE, message=HOSTILE)
    task = TaskView(0, HOSTILE, State.FAILED, message=HOSTILE, node=HOSTILE)
    for html in (html_of_job(job), JobTable([job])._repr_html_(), TaskTable([task])._repr_html_()):
        assert "&lt;script&gt;" in html
        assert "<script>" not in html
        assert "\x1b" not in html


def test_a_table_is_aligned_in_a_terminal_and_harmless_there() -> None:
    tasks = TaskTable([TaskView(0, "0", State.SUCCEEDED, exit_code=0), TaskView(1, "1", State.FAILED, message=HOSTILE)])
    assert repr(tasks).splitlines() == [
        "task  state      node  attempt  took  exit code  why",
        "0     SUCCEEDED        0        -     0",
        "1     FAILED           0        -                <script>alert(1)</script> [2J",
    ]
    assert len(tasks) == 2
    assert tasks[1].label == "1"


def test_a_slice_of_a_table_is_a_table_too() -> None:
    jobs = JobTable([a_view(), a_view(State.FAILED, name="fit")])
    assert repr(jobs[1:]).splitlines() == ["id    name  state   tasks  failed  why", "ab12  fit   FAILED  1/4    0"]
    assert repr(jobs[:1]).splitlines()[1].split()[1:3] == ["train", "RUNNING"]
    assert (jobs[0].name, jobs[-1].name) == ("train", "fit")


def test_a_job_that_waits_says_why() -> None:
    waiting = a_view(State.PENDING, done=0, message="needs 1 GPU")
    assert progress_text(waiting) == "0/4 ended, 4 running: needs 1 GPU"


def test_a_terminal_has_one_line_that_is_written_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress() as shown:
        shown.update(a_view())
        shown.update(a_view())
        shown.update(a_view(State.SUCCEEDED, done=4, name="train\x1b[2J"))
    begin, *lines = capsys.readouterr().err.split("\r")
    assert begin == ""
    assert [line.count("\x1b") for line in lines] == [1, 1]  # what clears the rest of the line
    assert lines[0].startswith("job 1 (train) [#######.......................] RUNNING 1/4 ended, 3 running")
    assert lines[1].endswith("SUCCEEDED 4/4 ended\x1b[K\n")


@pytest.mark.parametrize("wanted", [None, False])
def test_a_pipe_gets_nothing(wanted: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(wanted) as shown:
        shown.update(a_view())
    assert capsys.readouterr() == ("", "")


def test_a_notebook_has_one_display_that_is_updated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown_there: list[str] = []

    class Handle:
        def update(self, shown: Any) -> None:
            shown_there.append(shown._repr_html_())

    def display(shown: Any, *, display_id: bool) -> Handle:
        assert display_id
        Handle().update(shown)
        return Handle()

    ipython, displays = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    displays.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    with Progress() as shown:
        shown.update(a_view())
        shown.update(a_view(done=2))
    assert ['value="1"' in shown_there[0], 'value="2"' in shown_there[1]] == [True, True]
    assert capsys.readouterr() == ("", "")
