from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Asked, Said, StandIn, problem
from tests.unit.client.views import a_chunk, a_failure, a_job_view

from jobyard.cli.feed import Feed
from jobyard.cli.main import run
from jobyard.model.job import State
from jobyard.wire.views import Counts, JobView, LogChunk

PENDING, DONE = a_job_view(State.PENDING), a_job_view(State.SUCCEEDED)
FAILED = a_job_view(State.FAILED, exit_code=3, first_failure=a_failure("0"))


def offer(stand_in: StandIn, ended: JobView, *chunks: LogChunk, submitted: JobView = PENDING) -> None:
    """A job that is submitted, writes, and ends so."""
    stand_in.on("POST /jobs", Said(201, submitted))
    stand_in.on("GET /jobs/j1/watch", Said(events=[("job", "1", submitted), ("job", "2", ended)]))
    events = [("log", str(i), chunk) for i, chunk in enumerate((*chunks, a_chunk("", final=True)))]
    stand_in.on("GET /jobs/j1/logs", Said(events=events))


def test_a_single_task_looks_as_if_it_ran_here(yard: Yard, stand_in: StandIn) -> None:
    offer(stand_in, DONE, a_chunk("loss 0.1\n"), a_chunk("warning\n", "err"))
    result = yard("run", "--", "python", "train.py")
    assert result.code == 0
    assert result.out == "loss 0.1\n"
    assert "warning\n" in result.err
    assert "job 1 (train) succeeded after 2.5s" in result.err
    assert stand_in.calls("GET /jobs/j1/logs")[0].query == {"follow": "true"}


@pytest.mark.parametrize("flags", [[], ["-q"], ["--bar"], ["-o", "json"]])
def test_a_file_of_output_that_is_missing_is_told_on_stderr_and_changes_no_exit_code(
    yard: Yard, stand_in: StandIn, flags: list[str]
) -> None:
    told = "the output of the task is not in its file (/w/0: No space left on device); it is tried again"
    offer(stand_in, a_job_view(State.SUCCEEDED, not_written=told))
    result = yard("run", *flags, "--", "true")
    assert (result.code, result.err.count(f"yard: {told}\n")) == (0, 1)


def test_bytes_that_are_no_text_arrive_as_they_were(
    stand_in: StandIn, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    offer(stand_in, DONE, a_chunk("\udcff\n"))
    run(["run", "--", "true"])
    assert capsysbinary.readouterr().out == b"\xff\n"


@pytest.mark.parametrize(
    ("ended", "flags", "code"),
    [
        (DONE, [], 0),
        (FAILED, [], 1),
        (FAILED, ["--exit-code"], 3),
        (a_job_view(State.FAILED, first_failure=a_failure("0", signal=9, exit_code=None)), ["--exit-code"], 137),
        (a_job_view(State.FAILED, exit_code=0), ["--exit-code"], 1),
        (a_job_view(State.CANCELLED), [], 1),
        (a_job_view(State.CANCELLED), ["--exit-code"], 1),
    ],
)
def test_the_exit_code_says_how_it_ended(
    yard: Yard, stand_in: StandIn, ended: JobView, flags: list[str], code: int
) -> None:
    offer(stand_in, ended)
    assert yard("run", *flags, "--", "true").code == code


def test_many_tasks_are_summed_up_with_the_first_failure(yard: Yard, stand_in: StandIn) -> None:
    counts = Counts(total=100, succeeded=97, failed=3)
    ended = a_job_view(State.FAILED, counts=counts, first_failure=a_failure())
    offer(stand_in, ended, submitted=a_job_view(State.PENDING, counts=Counts(total=100, pending=100)))
    result = yard("run", "-a", "0-99", "--", "true")
    assert result.code == 1
    assert result.out == ""
    assert "job 1 (train) failed after 2.5s: 97 succeeded, 3 failed of 100" in result.err
    assert "first failure: task 7 on here, exit code 3" in result.err
    assert "    ValueError: no such file" in result.err
    assert "yard logs 1/7" in result.err
    assert stand_in.calls("GET /jobs/j1/logs") == []


@pytest.mark.parametrize(
    ("flags", "changes", "is_told"),
    [
        ([], {}, True),
        (["--bar"], {}, True),
        (["-q"], {}, False),
        (["--cat"], {}, False),
        ([], {"asked": {"staging.output": "out"}}, False),
        ([], {"started_at": None}, False),
    ],
)
def test_where_the_output_of_several_tasks_is_that_no_terminal_showed(
    yard: Yard, stand_in: StandIn, flags: list[str], changes: dict[str, Any], is_told: bool
) -> None:
    ended = a_job_view(State.SUCCEEDED, counts=Counts(total=2, succeeded=2), **changes)
    offer(stand_in, ended, submitted=a_job_view(State.PENDING, counts=Counts(total=2, pending=2)))
    result = yard("run", *flags, "-a", "0-1", "--", "true")
    assert result.code == 0, result.err
    assert result.err.count("yard: output: yard cat 1 (or run with --cat)\n") == is_told


def test_json_is_one_object_at_the_end_and_output_goes_to_stderr(yard: Yard, stand_in: StandIn) -> None:
    offer(stand_in, FAILED, a_chunk("loss\n"))
    result = yard("run", "-o", "json", "--", "true")
    data = json.loads(result.out)
    assert data["id"] == "j1"
    assert data["finished_at"] == 1003.5
    assert "loss\n" in result.err


def test_quiet_prints_only_the_number(yard: Yard, stand_in: StandIn) -> None:
    offer(stand_in, FAILED, a_chunk("loss\n"))
    result = yard("run", "-q", "--", "true")
    assert (result.code, result.out, result.err) == (1, "1\n", "")


@pytest.mark.parametrize("words", [["submit"], ["run", "-d"]])
def test_a_detached_submit_prints_the_number_and_returns(yard: Yard, stand_in: StandIn, words: list[str]) -> None:
    stand_in.on("POST /jobs", Said(201, a_job_view(State.PENDING, notes=("runs as plain processes",))))
    result = yard(*words, "--", "true")
    assert (result.code, result.out) == (0, "1\n")
    assert "note: runs as plain processes" in result.err


def test_the_death_of_the_server_does_not_end_the_run(yard: Yard, stand_in: StandIn) -> None:
    offer(stand_in, DONE)
    stand_in.on(
        "GET /jobs/j1/watch", Said(events=[("job", "1", PENDING)], dies=True), Said(events=[("job", "2", DONE)])
    )
    stand_in.on(
        "GET /jobs/j1/logs",
        Said(events=[("log", "1", a_chunk("one\n"))], dies=True),
        Said(events=[("log", "2", a_chunk("two\n", final=True))]),
    )
    result = yard("run", "--", "true")
    assert (result.code, result.out) == (0, "one\ntwo\n")


class Interrupted:
    """A job of which this process gets a signal while it runs, and which ends when it is cancelled."""

    def __init__(
        self, stand_in: StandIn, number: int, *, ends_on_cancel: bool = True, while_it_runs: bool = True
    ) -> None:
        self.cancels: list[dict[str, Any]] = []
        self._cancelled = threading.Event()
        self._number = number
        self._ends_on_cancel = ends_on_cancel
        self._while_it_runs = while_it_runs
        offer(stand_in, DONE)
        stand_in.on("GET /jobs/j1/logs", Said(events=[]))
        stand_in.on("GET /jobs/j1/watch", lambda asked: Said(events=self._events()))
        stand_in.on("POST /jobs/j1/cancel", self._cancel)

    def _events(self) -> Iterator[tuple[str, str, JobView]]:
        yield "job", "1", a_job_view(State.RUNNING)
        if self._while_it_runs:
            os.kill(os.getpid(), self._number)
        self._cancelled.wait(60 if self._number == signal.SIGINT else 5)  # others are not followed by a cancel
        yield "job", "2", a_job_view(State.CANCELLED)

    def _cancel(self, asked: Asked) -> Said:
        self.cancels.append(asked.body)
        if self._ends_on_cancel or asked.body.get("force"):
            self._cancelled.set()
        else:
            os.kill(os.getpid(), self._number)
        return Said(data=a_job_view(State.STOPPING))


def test_ctrl_c_cancels_the_job_and_waits_for_its_end(yard: Yard, stand_in: StandIn) -> None:
    job = Interrupted(stand_in, signal.SIGINT)
    result = yard("run", "--", "sleep", "99")
    assert result.code == 130
    assert [cancel.get("force", False) for cancel in job.cancels] == [False]
    assert "job 1 (train) was cancelled" in result.err


def test_a_second_ctrl_c_kills_the_job(yard: Yard, stand_in: StandIn) -> None:
    job = Interrupted(stand_in, signal.SIGINT, ends_on_cancel=False)
    assert yard("run", "--", "sleep", "99").code == 130
    assert [cancel.get("force", False) for cancel in job.cancels] == [False, True]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_hang_up_leaves_the_job_running(yard: Yard, stand_in: StandIn, number: signal.Signals) -> None:
    job = Interrupted(stand_in, number)
    result = yard("run", "--", "sleep", "99")
    assert result.code == 128 + number
    assert job.cancels == []
    assert "goes on: yard attach 1" in result.err


def test_a_ctrl_c_during_the_submit_cancels_what_was_submitted(yard: Yard, stand_in: StandIn) -> None:
    job = Interrupted(stand_in, signal.SIGINT, while_it_runs=False)

    def submit(asked: Asked) -> Said:
        os.kill(os.getpid(), signal.SIGINT)
        return Said(201, PENDING)

    stand_in.on("POST /jobs", submit)
    assert yard("run", "--", "true").code == 130
    assert len(job.cancels) == 1


def test_signals_are_as_before_afterwards(yard: Yard, stand_in: StandIn) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    offer(stand_in, DONE)
    yard("run", "--", "true")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_the_shells_variables_go_to_a_local_server_and_never_to_another(
    yard: Yard, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "s3cret")
    stand_in.on("POST /jobs", Said(201, PENDING))
    yard("submit", "--", "true")
    assert stand_in.calls("POST /jobs")[-1].body["spec"]["submitter"]["inherited_env"]["MY_SECRET"] == "s3cret"
    monkeypatch.setenv("YARD_URL", f"unix:{stand_in.socket_path}")
    yard("submit", "--", "true")
    assert stand_in.calls("POST /jobs")[-1].body["spec"]["submitter"]["inherited_env"]["MY_SECRET"] == "s3cret"
    monkeypatch.setattr("jobyard.client.address.Address.is_local", False)
    yard("submit", "-e", "MY_SECRET", "--", "true")
    spec = stand_in.calls("POST /jobs")[-1].body["spec"]
    assert "inherited_env" not in spec["submitter"]
    assert spec["env"] == {"MY_SECRET": "s3cret"}


def test_flags_before_and_after_the_file_mean_the_same(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("POST /jobs", Said(201, PENDING))
    with open("jobs.txt", "w") as file:
        file.write("echo a\necho b\n")
    yard("submit", "-n", "x", "jobs.txt", "--cpus", "2", "-p", "5")
    spec = stand_in.calls("POST /jobs")[-1].body["spec"]
    assert (spec["name"], spec["policy"]["priority"]) == ("x", 5)
    assert spec["groups"][0]["resources"]["cpu_millis"] == 2000


def test_words_after_the_dashes_belong_to_the_command(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("POST /jobs", Said(201, PENDING))
    yard("submit", "-n", "x", "--", "ls", "-n", "--", "y", "--help")
    spec = stand_in.calls("POST /jobs")[-1].body["spec"]
    assert spec["name"] == "x"
    assert spec["groups"][0]["command"]["argv"] == ["ls", "-n", "--", "y", "--help"]


def test_a_refused_submit_says_why(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("POST /jobs", problem(400, "bad_request", "no node has 99 GPUs; the largest, here, has 0"))
    result = yard("run", "-G", "99", "--", "true")
    assert (result.code, result.err) == (2, "yard: no node has 99 GPUs; the largest, here, has 0\n")


def test_a_feed_hands_on_what_came_and_what_broke() -> None:
    feed = Feed()
    feed.read("numbers", lambda: [1, 2])
    items = [feed.next(5) for _ in range(3)]
    assert items[:2] == [1, 2]
    assert items[2].source == "numbers"
    feed.read("broken", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    assert isinstance(feed.next(5).error, ZeroDivisionError)
    assert feed.next(0.0) is None
