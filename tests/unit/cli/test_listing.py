"""`yard ls` and `yard show`: tables for people, JSON for programs."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import click
import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Asked, Said, StandIn
from tests.unit.client.views import a_failure, a_job_view

from jobyard.client import api
from jobyard.model.job import Reason, State
from jobyard.wire.views import (
    AttemptView,
    Counts,
    TaskView,
    WhyView,
)

ARRAY = a_job_view(State.RUNNING, counts=Counts(total=2, running=2))


def test_ls_is_a_table_for_people_and_a_list_for_programs(yard: Yard, stand_in: StandIn) -> None:
    evil = a_job_view(State.FAILED, name="\x1b[31mevil\nname", counts=Counts(total=10, succeeded=9, failed=1))
    stand_in.on("GET /jobs", Said(data=(evil,)))
    lines = yard("ls", "--all", "--state", "failed", "-n", "5").out.splitlines()
    assert lines[0].split() == ["JOB", "NAME", "STATE", "DONE", "FAILED", "PRIO", "AGE", "TIME", "ETA", "WHAT"]
    assert lines[1].split()[:5] == ["1", "evil", "name", "FAILED", "10/10"]
    assert stand_in.calls("GET /jobs")[0].query == {"all": "true", "state": "FAILED", "limit": "5"}
    assert json.loads(yard("ls", "-o", "json").out)[0]["counts"]["pending"] == 0
    assert yard("ls", "-q").out == "1\n"


def test_what_has_ended_shows_its_command_before_its_message(yard: Yard, stand_in: StandIn) -> None:
    words = {"command": "test 3 != 3", "message": "task 2 failed with exit code 1"}
    jobs = [a_job_view(state, **words) for state in (State.FAILED, State.PENDING, State.RUNNING)]
    jobs += [a_job_view(State.FAILED, command="", message="gone"), a_job_view(State.SUCCEEDED, command="true")]
    stand_in.on("GET /jobs", Said(data=jobs))
    assert [line.split(maxsplit=9)[9] for line in yard("ls").out.splitlines()[1:]] == [
        "test 3 != 3 (task 2 failed with exit code 1)",
        "task 2 failed with exit code 1",
        "test 3 != 3",
        "gone",
        "true",
    ]


def test_a_task_that_was_cancelled_is_not_done(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs", Said(data=(a_job_view(State.CANCELLED, started_at=None),)))
    assert yard("ls").out.splitlines()[1].split()[3] == "0/1"


def test_ls_has_the_server_look_for_the_jobs_that_are_wanted(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs", Said(data=()))
    assert "no such jobs" in yard("ls", "--user", "ben", "--name", "train*", "--since", "2h").err
    (asked,) = stand_in.calls("GET /jobs")
    assert 0 < float(asked.query.pop("since")) < 1e12
    assert asked.query == {"all": "true", "user": "ben", "name": "train*", "limit": "50"}
    refused = yard("ls", "--since", "yesteryear")
    assert (refused.code, "--since: cannot read 'yesteryear'" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("word", "states"),
    [
        ("ended", "SUCCEEDED,FAILED,CANCELLED"),
        ("active", "STARTING,RUNNING,STOPPING"),
        ("unfinished", "PENDING,STARTING,RUNNING,STOPPING,SUSPENDED"),
        ("Failed,cancelled", "FAILED,CANCELLED"),
        ("failed, ended", "FAILED,SUCCEEDED,CANCELLED"),
    ],
)
def test_a_word_may_stand_for_several_states(yard: Yard, stand_in: StandIn, word: str, states: str) -> None:
    stand_in.on("GET /jobs", Said(data=()))
    assert yard("ls", "--state", word).code == 0
    assert stand_in.calls("GET /jobs")[0].query["state"] == states
    refused = yard("ls", "--state", "failed,endde")
    assert (refused.code, "unknown value 'endde'; did you mean ended?" in refused.err) == (2, True)


def test_a_pipe_gets_the_beginning_of_a_long_command_and_json_all_of_it(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs", Said(data=(a_job_view(name="n" * 100, command="python " + "x" * 4000),)))
    row = yard("ls").out.splitlines()[1]
    assert len(row) < 250
    assert row.endswith("x…")
    assert "n" * 100 in row, "only what a job runs is cut"
    assert "x" * 4000 in yard("ls", "-o", "json").out


def test_ls_keeps_recent_failures_in_sight(yard: Yard, stand_in: StandIn) -> None:
    newer = [a_job_view(State.SUCCEEDED, id=f"s{n}", number=n) for n in range(90, 10, -1)]
    failed = [a_job_view(State.FAILED, id="s90", number=90), a_job_view(State.FAILED, id="f4", number=4)]
    stand_in.on("GET /jobs", lambda asked: Said(data=failed if asked.query.get("state") else newer[:50]))
    shown = yard("ls").out.splitlines()
    assert [line.split()[0] for line in shown[-2:]] == ["41", "4"]
    assert len(shown) == 52
    assert len(yard("ls", "-a").out.splitlines()) == 51, "all are asked for: nothing is hidden"


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_ls_fits_the_terminal_and_what_goes_on_has_the_width_that_is_left(
    yard: Yard, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    long = a_job_view(name="n" * 60, command="python train.py " + "x" * 300, counts=Counts(total=10**6, running=9))
    stand_in.on("GET /jobs", Said(data=(long,)))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    headers, row = click.unstyle(yard("ls").out).splitlines()
    assert len(row) == columns
    assert len(row) - row.index("python") >= columns // 4
    assert {"JOB", "NAME", "STATE", "DONE", "WHAT"} <= set(headers.split())


def test_ls_of_an_empty_yard_says_so_on_stderr(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs", Said(data=()))
    result = yard("ls")
    assert result.out == ""
    assert "no jobs" in result.err


def test_show_has_the_job_and_its_tasks(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/last", Said(data=a_job_view(State.FAILED, first_failure=a_failure("0"))))
    stand_in.on("GET /jobs/j1/tasks", Said(data=(a_failure("0").task,)))
    shown = yard("show", "last", "--tasks").out
    assert "python train.py" in shown
    assert "first failure: task 0" in shown
    assert "exit code 3" in shown
    assert json.loads(yard("show", "last", "--tasks", "-o", "json").out)["tasks"][0]["label"] == "0"
    assert "tasks" not in json.loads(yard("show", "last", "-o", "json").out)


def test_show_has_the_attempts_before_a_retry_and_the_first_start(yard: Yard, stand_in: StandIn) -> None:
    past = AttemptView(1, "there", 10.0, 70.0, Reason.EXIT_CODE, "exited with code 3: no GPU", 3)
    task = TaskView(0, "0", State.SUCCEEDED, 2, node="here", exit_code=0, earlier=(past,), command="python train.py")
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(State.SUCCEEDED, first_started_at=10.0)))
    stand_in.on("GET /jobs/j1/tasks", Said(data=(task,)))
    lines = yard("show", "j1", "--tasks").out.splitlines()
    assert [line.split()[:4] for line in lines[-2:]] == [["0", "FAILED", "1", "there"], ["0", "SUCCEEDED", "2", "here"]]
    assert "1m00s" in lines[-2]
    assert lines[-2].endswith("exited with code 3: no GPU")
    assert any(line.startswith("first start") for line in lines)
    assert json.loads(yard("show", "j1", "--tasks", "-o", "json").out)["tasks"][0]["earlier"][0]["exit_code"] == 3
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(first_started_at=1001.0)))
    assert "first start" not in yard("show", "j1").out


def test_each_parameter_of_a_sweep_is_a_column(yard: Yard, stand_in: StandIn) -> None:
    values = {"lr": "1e-3", "state": "a,b"}
    tasks = [
        TaskView(0, "0", State.FAILED, 2, node="n", exit_code=3, started_at=1.0, finished_at=3.5, values=values),
        TaskView(1, "1", State.PENDING, command='t "x"', values={"lr": "2"}),
    ]
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(counts=Counts(total=2, pending=2))))
    stand_in.on("GET /jobs/j1/tasks", Said(data=tuple(tasks)))
    assert yard("show", "j1", "--tasks", "-o", "csv").out.splitlines() == [
        "task,state,attempt,node,exit_code,signal,started_at,finished_at,seconds,lr,param_state,peak_memory_mib,command",
        '0,FAILED,2,n,3,,1.000,3.500,2.500,1e-3,"a,b",,',
        '1,PENDING,0,,,,,,,2,,,"t ""x"""',
    ]
    header, first, _ = yard("show", "j1", "--tasks").out.splitlines()[-3:]
    assert header.split()[-3:] == ["lr", "state", "COMMAND"]
    assert first.split()[-3:] == ["1e-3", "a,b", "-"]
    assert json.loads(yard("show", "j1", "--tasks", "-o", "json").out)["tasks"][0]["values"] == values


def test_lines_of_a_value_are_quoted_in_csv_and_nothing_steers_a_terminal(yard: Yard, stand_in: StandIn) -> None:
    values = {"prompt": "one\n\ttwo\n", "odd": "a\x1b[2Jb"}
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(counts=Counts(total=1, pending=1))))
    stand_in.on("GET /jobs/j1/tasks", Said(data=(TaskView(0, "0", State.PENDING, command="x\ny", values=values),)))
    (row,) = csv.DictReader(io.StringIO(yard("show", "j1", "--tasks", "-o", "csv").out))
    assert (row["prompt"], row["odd"], row["command"]) == ("one\n\ttwo\n", "ab", "x\ny")


def test_csv_is_for_tasks(yard: Yard, stand_in: StandIn) -> None:
    result = yard("show", "j1", "-o", "csv")
    assert (result.code, result.err) == (
        2,
        "yard: -o csv: it is a table of tasks; write `yard show JOB --tasks -o csv`\n",
    )


def test_show_tells_tasks_apart_by_their_commands(yard: Yard, stand_in: StandIn) -> None:
    tasks = [TaskView(n, str(n), State.PENDING, command=f"echo {n}") for n in range(2)]
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(counts=Counts(total=2, pending=2))))
    stand_in.on("GET /jobs/j1/tasks", Said(data=tasks))
    shown = yard("show", "j1", "--tasks").out
    assert [line.split()[-2:] for line in shown.splitlines()[-2:]] == [["echo", "0"], ["echo", "1"]]
    stand_in.on("GET /jobs/j1/tasks", Said(data=[replace(task, command="python train.py") for task in tasks]))
    assert "COMMAND" not in yard("show", "j1", "--tasks").out, "all have the job's"


def test_a_long_table_says_how_much_is_missing_and_programs_get_all(yard: Yard, stand_in: StandIn) -> None:
    jobs = [a_job_view(id=f"j{n}") for n in range(60)]

    def page(asked: Asked) -> Said:
        return Said(data=jobs[: int(asked.query.get("limit", 1000))], headers={"Yard-Total": "60"})

    stand_in.on("GET /jobs", page)
    shown = yard("ls", "-a")
    assert (len(shown.out.splitlines()), "and 10 more (-n N shows N jobs)" in shown.err) == (51, True)
    assert "and 10 more (-a shows what ended long ago too" in yard("ls").err
    assert len(json.loads(yard("ls", "-a", "-o", "json").out)) == len(yard("ls", "-q").out.split()) == 60
    assert "more" not in yard("ls", "-n", "60").err


def test_all_tasks_come_in_pages_to_programs(yard: Yard, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "PAGE_MOST", 200)
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(counts=Counts(total=250, pending=250))))

    def page(asked: Asked) -> Said:
        first = int(asked.query.get("offset", 0))
        numbers = range(first, min(250, first + int(asked.query["limit"])))
        return Said(data=[TaskView(number=n, label=str(n), state=State.PENDING, attempt=0) for n in numbers])

    stand_in.on("GET /jobs/j1/tasks", page)
    tasks = json.loads(yard("show", "j1", "--tasks", "-o", "json").out)["tasks"]
    assert [task["number"] for task in tasks] == list(range(250))
    assert "and 150 more (use -n)" in yard("show", "j1", "--tasks").err


def test_show_and_why_say_that_a_failed_task_wrote_nothing(yard: Yard, stand_in: StandIn) -> None:
    silent = replace(a_failure(command="test 3 != 3"), last_lines=())
    lost = replace(a_failure(exit_code=None, reason=Reason.NODE_LOST), last_lines=())
    for failure, has_line in ((silent, True), (a_failure(), False), (lost, False)):
        job = a_job_view(State.FAILED, first_failure=failure)
        stand_in.on("GET /jobs/j1", Said(data=job))
        stand_in.on("GET /jobs/j1/why", Said(data=WhyView("j1", State.FAILED, None, (), failure, 1)))
        for verb in ("show", "why"):
            assert (yard(verb, "j1").out.splitlines()[-1] == "    (no output)") is has_line
