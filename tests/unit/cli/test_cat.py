"""Plain output of all tasks in their order, and pipes that are closed early."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Asked, Said, StandIn
from tests.unit.client.views import a_chunk, a_failure, a_job_view

from jobyard.cli.main import run
from jobyard.model.job import State
from jobyard.wire.views import Counts, LogChunk, TaskView

SEVERAL = Counts(total=3, running=3)
RUNNING = a_job_view(State.RUNNING, counts=SEVERAL)
PIECES = (LogChunk("0", 1, "out", "zero\n"), LogChunk("1", 1, "err", "oh\n"), LogChunk("2", 1, "out", "two"))


def offer(stand_in: StandIn, state: State = State.SUCCEEDED) -> None:
    """A job of three tasks that ends so."""
    ended = a_job_view(
        state, counts=Counts(total=3, succeeded=3), first_failure=a_failure("0") if state is State.FAILED else None
    )
    stand_in.on("POST /jobs", Said(201, RUNNING))
    stand_in.on("GET /jobs/j1", Said(data=RUNNING))
    stand_in.on("GET /jobs/j1/watch", Said(events=[("job", "1", RUNNING), ("job", "2", ended)]))
    events = [("log", str(i), chunk) for i, chunk in enumerate((*PIECES, a_chunk("", final=True)))]
    stand_in.on("GET /jobs/j1/logs", Said(events=events))


@pytest.mark.parametrize(("state", "code"), [(State.SUCCEEDED, 0), (State.FAILED, 1)])
def test_cat_is_the_plain_output_and_exits_as_wait(yard: Yard, stand_in: StandIn, state: State, code: int) -> None:
    offer(stand_in, state)
    result = yard("cat", "j1")
    assert (result.out, result.err, result.code) == ("zero\ntwo", "oh\n", code)
    assert stand_in.calls("GET /jobs/j1/logs")[0].query == {"ordered": "true"}


DAMAGED = LogChunk("1", 1, "out", "", damage="the packed output of tasks 1 to 2 is damaged")


@pytest.mark.parametrize("verb", ["cat", "logs"])
@pytest.mark.parametrize("form", [[], ["-o", "json"]])
def test_what_cannot_be_read_is_told_once_on_stderr_with_an_exit_code_and_the_rest_is_printed(
    yard: Yard, stand_in: StandIn, verb: str, form: list[str]
) -> None:
    offer(stand_in)
    chunks = (PIECES[0], DAMAGED, replace(DAMAGED, task="2"), a_chunk("", final=True))
    stand_in.on("GET /jobs/j1/logs", Said(events=[("log", str(i), chunk) for i, chunk in enumerate(chunks)]))
    result = yard(verb, "j1", *form)
    assert "zero" in result.out
    assert ("damaged" in result.out) == bool(form), "only for programs it is one of the chunks"
    assert (result.err, result.code) == (f"yard: {DAMAGED.damage}\n", 1)


@pytest.mark.parametrize(
    ("words", "bad", "code"),
    [
        (["j1/1-2"], [], 0),
        (["j1/1-2"], [a_failure("2").task], 1),
        (["j1", "--task", "1-2", "--exit-code"], [a_failure("2").task], 1),
        (["j1/2", "--exit-code"], [a_failure("2").task], 3),
    ],
)
def test_cat_of_some_tasks_prints_them_and_exits_by_them(
    yard: Yard, stand_in: StandIn, words: list[str], bad: list[TaskView], code: int
) -> None:
    offer(stand_in, State.FAILED)
    stand_in.on("GET /jobs/j1/tasks", Said(data=bad))
    result = yard("cat", *words)
    assert (result.out, result.code) == ("zero\ntwo", code)
    tasks = "2" if words[0] == "j1/2" else "1-2"
    assert stand_in.calls("GET /jobs/j1/logs")[0].query == {"ordered": "true", "task": tasks}
    assert stand_in.calls("GET /jobs/j1/tasks")[0].query == {"task": tasks, "state": "FAILED,CANCELLED", "limit": "1"}
    assert stand_in.calls("GET /jobs/j1/watch") == [], "the job may go on for long"


def test_cat_of_what_failed_asks_for_it_and_waits_for_no_other_task(yard: Yard, stand_in: StandIn) -> None:
    offer(stand_in, State.FAILED)
    stand_in.on("GET /jobs/j1/tasks", Said(data=[a_failure("2").task]))
    result = yard("cat", "j1", "--failed", "--exit-code")
    assert (result.out, result.err, result.code) == ("zero\ntwo", "oh\n", 1), (
        "the code of one of three tasks is not theirs"
    )
    assert stand_in.calls("GET /jobs/j1/logs")[0].query == {"failed": "true"}
    assert stand_in.calls("GET /jobs/j1/watch") == []


@pytest.mark.parametrize("verb", ["cat", "logs"])
@pytest.mark.parametrize(
    ("failed", "words", "sentence"),
    [
        (2, [], "no output: the 2 failed tasks of job 1 wrote nothing"),
        (1, [], "no output: the 1 failed task of job 1 wrote nothing"),
        (2, ["--task", "0-1"], "no output: among tasks 0-1 of job 1 none that failed wrote anything"),
        (0, [], "no task of job 1 has failed"),
    ],
)
def test_failed_tasks_that_wrote_nothing_are_told_of(
    yard: Yard, stand_in: StandIn, verb: str, failed: int, words: list[str], sentence: str
) -> None:
    silent = a_job_view(State.FAILED, counts=Counts(total=3, succeeded=3 - failed, failed=failed))
    stand_in.on("GET /jobs/j1", Said(data=silent))
    stand_in.on("GET /jobs/j1/tasks", Said(data=[a_failure("1").task] * failed))
    stand_in.on("GET /jobs/j1/logs", Said(events=[("log", "1", a_chunk("", final=True))]))
    result = yard(verb, "j1", "--failed", *words)
    assert (result.out, result.err) == ("", f"yard: {sentence}\n")
    assert yard(verb, "j1", "--failed", *words, "-o", "json").err == result.err


def test_cat_for_programs_is_a_chunk_per_line(yard: Yard, stand_in: StandIn) -> None:
    offer(stand_in)
    chunks = [json.loads(line) for line in yard("cat", "j1", "-o", "json").out.splitlines()]
    assert [chunk["task"] for chunk in chunks if chunk["data"]] == ["0", "1", "2"]


@pytest.mark.parametrize("flags", [[], ["-q"]])
def test_run_cat_prints_the_output_of_several_tasks(yard: Yard, stand_in: StandIn, flags: list[str]) -> None:
    offer(stand_in)
    result = yard("run", "--cat", *flags, "-a", "0-2", "--", "true")
    assert (result.out, result.code) == ("zero\ntwo", 0)
    assert "oh\n" in result.err


def test_cat_and_detach_contradict_each_other(yard: Yard, stand_in: StandIn) -> None:
    result = yard("run", "--cat", "-d", "--", "true")
    assert result.code == 2
    assert "--cat: nothing is printed with --detach" in result.err
    assert stand_in.calls("POST /jobs") == []


@contextmanager
def closed_stdout() -> Iterator[None]:
    """Nobody reads what we print, as after `| head`. No fixture: pytest has an stdout of its own for each phase."""
    reader, writer = os.pipe()
    os.close(reader)
    before = os.dup(1)
    os.dup2(writer, 1)
    try:
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)
        os.close(writer)


class QuietJob:
    """It runs until it is cancelled, and writes nothing."""

    def __init__(self, stand_in: StandIn) -> None:
        self.messages: list[str] = []
        self._is_over = threading.Event()
        offer(stand_in)
        stand_in.on("GET /jobs/j1/logs", lambda asked: Said(events=self._silence()))
        stand_in.on("GET /jobs/j1/watch", lambda asked: Said(events=self._silence()))
        stand_in.on("POST /jobs/j1/cancel", self._cancel)

    def _silence(self) -> Iterator[tuple[str, str, object]]:
        self._is_over.wait(60)
        yield "log", "1", a_chunk("", final=True)

    def _cancel(self, asked: Asked) -> Said:
        self.messages.append(asked.body["message"])
        return Said(data=RUNNING)

    def end(self) -> None:
        self._is_over.set()


@pytest.fixture
def quiet_job(stand_in: StandIn) -> Iterator[QuietJob]:
    job = QuietJob(stand_in)
    yield job
    job.end()


def test_cat_ends_when_nobody_reads_also_while_nothing_comes(quiet_job: QuietJob) -> None:
    with closed_stdout():
        assert run(["cat", "j1"]) == 0
    assert quiet_job.messages == []


def test_run_cat_cancels_its_job_when_nobody_reads(quiet_job: QuietJob) -> None:
    with closed_stdout():
        assert run(["run", "--cat", "-a", "0-2", "--", "true"]) == 0
    assert quiet_job.messages == ["nobody reads its output any more"]


def left_early(*words: str) -> tuple[int, str]:
    """How a call ends whose stdout nobody reads, and what it says."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "jobyard.cli.main", *words]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "words", [("ls",), ("ls", "-o", "json"), ("show", "j1"), ("logs", "-f", "j1"), ("cat", "-o", "json", "j1")]
)
def test_a_reader_that_leaves_early_is_an_error_of_no_verb(stand_in: StandIn, words: tuple[str, ...]) -> None:
    offer(stand_in)
    stand_in.on("GET /jobs", Said(data=(RUNNING,)))
    assert left_early(*words) == (0, "")


def test_a_job_whose_output_nobody_reads_any_more_goes_on_and_that_is_said(stand_in: StandIn) -> None:
    stand_in.on("POST /jobs", Said(201, a_job_view(State.RUNNING)))
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(State.RUNNING)))  # what is watched may end before the log comes
    stand_in.on("GET /jobs/j1/watch", Said(events=[("job", "1", a_job_view(State.RUNNING))]))
    stand_in.on("GET /jobs/j1/logs", Said(events=[("log", "1", a_chunk("loss\n"))]))
    code, said = left_early("run", "--", "true")
    assert (code, said.splitlines()[-1]) == (0, "yard: nobody reads any more; job 1 (train) goes on: yard attach 1")
    assert stand_in.calls("POST /jobs/j1/cancel") == []


def test_a_write_to_a_closed_pipe_is_no_error_of_cat(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offer(stand_in)

    def refuse(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("jobyard.cli.output.tasklog._write", refuse)
    assert run(["cat", "j1"]) == 0
    assert capsys.readouterr().err == ""
