"""Logs: which bytes does `yard logs` print, of which tasks?"""

from __future__ import annotations

import time

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Said, StandIn
from tests.unit.client.views import a_job_view

from jobyard.model.job import Reason, State
from jobyard.wire.views import (
    Counts,
    LogChunk,
    TaskView,
)

ARRAY = a_job_view(State.RUNNING, counts=Counts(total=2, running=2))


def test_a_job_that_never_ran_has_no_logs_to_look_at(yard: Yard, stand_in: StandIn) -> None:
    never = a_job_view(State.CANCELLED, started_at=None, message="cancelled by me", reason=Reason.CANCELLED)
    stand_in.on("GET /jobs/j1", Said(data=never))
    assert yard("wait", "j1").err.splitlines()[1:] == ["yard: cancelled by me"]
    assert "state      CANCELLED\n" in yard("show", "j1").out


def test_logs_of_one_task_are_its_bytes_each_on_its_own_stream(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view()))
    stand_in.on("GET /jobs/j1/logs/raw", lambda asked: Said(data=asked.query["stream"].encode()))
    result = yard("logs", "j1")
    assert (result.out, result.err) == ("out", "err")
    assert yard("logs", "j1", "--raw", "--stream", "err").out == "err"


def test_logs_of_several_tasks_are_merged_with_prefixes(yard: Yard, stand_in: StandIn) -> None:
    pieces = [("0", "out", "one\ntw"), ("1", "err", "ONE\n"), ("0", "out", "o\nthree"), ("1", "out", "")]
    events = [("log", str(i), LogChunk(task, 1, stream, data)) for i, (task, stream, data) in enumerate(pieces)]
    stand_in.on("GET /jobs/j1", Said(data=ARRAY))
    stand_in.on("GET /jobs/j1/logs", Said(events=events), Said(events=[]))
    assert yard("logs", "j1", "-f", "--tail", "3").out == "0| one\n1| ONE\n0| two\n0| three\n"
    assert stand_in.calls("GET /jobs/j1/logs")[0].query == {"follow": "true", "tail": "3"}


def test_raw_logs_of_several_tasks_ask_for_one(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=ARRAY))
    result = yard("logs", "j1", "--raw")
    assert result.code == 2
    assert "name one, as in 1/TASK" in result.err


def test_logs_of_some_tasks_are_asked_for_together(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=ARRAY))
    stand_in.on("GET /jobs/j1/logs", Said(events=[("log", "1", LogChunk("3", 1, "out", "one\n", final=True))]))
    assert yard("logs", "j1", "--task", "3", "--task", "7-9", "--failed", "--no-prefix").out == "one\n"
    assert stand_in.calls("GET /jobs/j1/logs")[0].query == {"task": "3,7-9", "failed": "true"}


def test_a_further_attempt_is_told_of_while_it_is_followed(yard: Yard, stand_in: StandIn) -> None:
    tries = [("0", 1), ("1", 1), ("0", 2), ("1", 1), ("0", 2), ("0", 3)]
    events = [("log", str(i), LogChunk(task, number, "out", f"{i}\n")) for i, (task, number) in enumerate(tries)]
    stand_in.on("GET /jobs/j1", Said(data=ARRAY))
    stand_in.on("GET /jobs/j1/logs", Said(events=events), Said(events=[]))
    result = yard("logs", "j1", "-f")
    assert result.out == "0| 0\n1| 1\n0| 2\n1| 3\n0| 4\n0| 5\n"
    assert result.err == "yard: attempt 2 of task 0 begins\nyard: attempt 3 of task 0 begins\n"


def test_each_line_has_the_time_at_which_it_came_if_that_is_known(
    yard: Yard, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.localtime", time.gmtime)
    chunks = [LogChunk("0", 1, "out", "old\n"), LogChunk("0", 1, "err", "new\n", at=86_400.5)]
    stand_in.on("GET /jobs/j1", Said(data=a_job_view()))
    stand_in.on("GET /jobs/j1/logs", Said(events=[("log", str(i), c) for i, c in enumerate(chunks)]), Said(events=[]))
    lines = yard("logs", "j1", "-f", "--timestamps").out.splitlines()
    assert lines == ["-                   old", "1970-01-02 00:00:00 new"]


def test_times_and_failures_are_refused_where_they_mean_nothing(yard: Yard, stand_in: StandIn) -> None:
    late = yard("logs", "j1", "--timestamps")
    assert late.code == 2
    assert "when a line was written is not recorded; with --follow" in late.err
    both = yard("logs", "j1", "--failed", "-f")
    assert both.code == 2
    assert "leave --failed or --follow out" in both.err
    assert stand_in.asked == []


def test_a_task_whose_output_is_packed_names_the_command_that_prints_it(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=ARRAY))
    task = TaskView(1, "1", State.SUCCEEDED, 1, node="here", exit_code=0)
    stand_in.on("GET /jobs/j1/tasks", Said(data=(task,)))
    assert yard("show", "j1/1").out.splitlines()[-1].split(maxsplit=1) == ["output", "`yard logs 1/1`"]
    stand_in.on("GET /jobs/j1/tasks", Said(data=(TaskView(1, "1", State.PENDING),)))
    assert "yard logs" not in yard("show", "j1/1").out
