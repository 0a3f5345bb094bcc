"""The live view of a job that was submitted before, and its keys, on a terminal of its own."""

from __future__ import annotations

import os
import pty
import signal
import termios
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.unit.cli.conftest import Result, Yard
from tests.unit.client.stand_in import Asked, Said, StandIn
from tests.unit.client.views import a_failure, a_job_view
from tests.waiting import until

from jobyard.model.job import State
from jobyard.wire.views import Counts, JobView, TaskView

RUNS = a_job_view(counts=Counts(total=3, running=2, failed=1), first_failure=a_failure("0"))
CANCELLED = a_job_view(State.CANCELLED)
A_TASK = TaskView(1, "1", State.RUNNING, 1, started_at=1.0, command="python fold.py 1", last_line="loss 0.25")


class Person:
    """At a terminal: presses keys, and sees whether they are echoed."""

    def __init__(self, terminal: int, own_end: int) -> None:
        self.terminal = terminal
        self._own_end = own_end
        self.was_echoed = self.is_echoed

    @property
    def is_echoed(self) -> bool:
        return bool(termios.tcgetattr(self.terminal)[3] & termios.ECHO)

    def press(self, keys: str) -> None:
        os.write(self._own_end, keys.encode())


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Iterator[Person]:
    own_end, terminal = pty.openpty()
    monkeypatch.setattr("os.tcgetpgrp", lambda terminal: os.getpgrp())
    monkeypatch.setattr("jobyard.cli.follow.TASKS_SECONDS", 0.01)
    yield Person(terminal, own_end)
    os.close(own_end)
    os.close(terminal)


@pytest.fixture
def typed(yard: Yard, person: Person, monkeypatch: pytest.MonkeyPatch) -> Yard:
    """`yard` at the person's terminal."""

    def call(*words: str) -> Result:
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        with os.fdopen(os.dup(person.terminal)) as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            return yard(*words)

    return call


class RunningJob:
    """It ends when it is cancelled, or when the test says so."""

    def __init__(self, stand_in: StandIn, while_it_runs: Callable[[], None]) -> None:
        self.cancels: list[str] = []
        self.ended = threading.Event()
        self._while_it_runs = while_it_runs
        stand_in.on("GET /jobs/j1", Said(data=RUNS))
        stand_in.on("GET /jobs/j1/watch", lambda asked: Said(events=self._events()))
        stand_in.on("GET /jobs/j1/tasks", Said(data=(A_TASK,)))
        stand_in.on("POST /jobs/j1/cancel", self._cancel)

    def _events(self) -> Iterator[tuple[str, str, JobView]]:
        yield "job", "1", RUNS
        self._while_it_runs()
        self.ended.wait(5)
        yield "job", "2", CANCELLED

    def _cancel(self, asked: Asked) -> Said:
        self.cancels.append(asked.body["message"])
        self.ended.set()
        return Said(data=RUNS)


def test_attach_shows_what_runs_and_what_failed_until_q_is_pressed(
    typed: Yard, stand_in: StandIn, person: Person
) -> None:
    def looked_and_leaves() -> None:
        until(lambda: len(stand_in.calls("GET /jobs/j1/tasks")) > 2)
        until(lambda: not person.is_echoed)
        person.press("q")

    job = RunningJob(stand_in, looked_and_leaves)
    result = typed("attach", "j1")
    job.ended.set()
    assert (result.code, job.cancels) == (0, [])
    for text in ("python fold.py 1", "loss 0.25", "first failure: task 0", "q leaves, c cancels"):
        assert text in result.err
    assert "job 1 (train) goes on (1/3 done, 2 running, 1 failed); to look again: yard attach 1" in result.err
    assert person.is_echoed is person.was_echoed is True
    asked = stand_in.calls("GET /jobs/j1/tasks")[0].query
    assert asked == {"state": "RUNNING,STOPPING", "limit": "50", "last_line": "true"}, "not what is about to start"


def test_c_cancels_only_after_y_and_any_other_key_is_a_no(typed: Yard, stand_in: StandIn, person: Person) -> None:
    def answers() -> None:
        until(lambda: not person.is_echoed)
        person.press("cncqyxcy")

    job = RunningJob(stand_in, answers)
    assert typed("wait", "j1").code == 1
    assert job.cancels == ["in the live view"]


def test_a_key_that_is_a_sequence_of_bytes_is_no_letter(typed: Yard, stand_in: StandIn, person: Person) -> None:
    """Shift-Right of some terminals ends with a c, F-keys with others."""

    def presses() -> None:
        until(lambda: not person.is_echoed)
        person.press("c\x1b[Ay\x1b[c\x1bOcyq")

    job = RunningJob(stand_in, presses)
    assert typed("attach", "j1").code == 0
    job.ended.set()
    assert job.cancels == []


@pytest.mark.parametrize("verb", ["attach", "wait"])
def test_ctrl_c_in_the_live_view_says_that_the_job_goes_on(
    typed: Yard, stand_in: StandIn, person: Person, verb: str
) -> None:
    def interrupts() -> None:
        until(lambda: not person.is_echoed)
        os.kill(os.getpid(), signal.SIGINT)

    job = RunningJob(stand_in, interrupts)
    result = typed(verb, "j1")
    job.ended.set()
    assert (result.code, job.cancels, person.is_echoed) == (130, [], True)
    assert "job 1 (train) goes on (1/3 done, 2 running, 1 failed); to look again: yard attach 1" in result.err


@pytest.mark.parametrize("verb", ["attach", "wait"])
def test_a_hang_up_leaves_the_terminal_as_it_was(typed: Yard, stand_in: StandIn, person: Person, verb: str) -> None:
    def hangs_up() -> None:
        until(lambda: not person.is_echoed)
        os.kill(os.getpid(), signal.SIGTERM)

    job = RunningJob(stand_in, hangs_up)
    result = typed(verb, "j1")
    job.ended.set()
    assert (result.code, job.cancels, person.is_echoed) == (128 + signal.SIGTERM, [], True)


def test_a_terminal_that_cannot_be_drawn_on_gets_plain_lines(
    typed: Yard, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    RunningJob(stand_in, lambda: None).ended.set()
    result = typed("attach", "j1")
    assert "\x1b[?" not in result.err
    assert "\r" not in result.err
    assert "yard: 1/3 done, 2 running, 1 failed" in result.err


def test_wait_of_a_pipe_says_only_how_it_ended(yard: Yard, stand_in: StandIn) -> None:
    RunningJob(stand_in, lambda: None).ended.set()
    result = yard("wait", "j1")
    assert result.err.splitlines() == ["yard: job 1 (train) was cancelled after 2.5s", "yard: logs: yard logs 1"]
    assert stand_in.calls("GET /jobs/j1/tasks") == []


def test_keys_are_left_alone_where_another_program_has_the_terminal(
    typed: Yard, stand_in: StandIn, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.tcgetpgrp", lambda terminal: os.getpgrp() + 1)
    seen: list[bool] = []
    RunningJob(stand_in, lambda: seen.append(person.is_echoed)).ended.set()
    assert "q leaves" not in typed("attach", "j1").err
    assert seen == [True]
