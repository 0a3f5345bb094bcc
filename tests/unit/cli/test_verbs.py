from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import click
import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Asked, Said, StandIn, problem
from tests.unit.client.views import NODE, SERVER_PID, a_failure, a_job_view, a_server_view

from jobyard.cli.group import VERBS
from jobyard.cli.group import yard as yard_group
from jobyard.cli.other_words import OTHER_WORDS
from jobyard.client import api
from jobyard.model.job import Reason, State
from jobyard.wire.views import (
    AttemptView,
    Counts,
    FailureView,
    JobView,
    LogChunk,
    PlanView,
    TaskView,
    TokenView,
    WhyView,
)

ARRAY = a_job_view(State.RUNNING, counts=Counts(total=2, running=2))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_json(verb: str, yard: Yard) -> None:
    context = yard_group.make_context("yard", [verb, "--help"], resilient_parsing=True)
    command = yard_group.get_command(context, verb)
    assert command is not None
    leaves = getattr(command, "commands", {"": command}).values()
    for leaf in leaves:
        assert any("--output" in parameter.opts for parameter in leaf.params), leaf.name
    result = yard(verb, "--help")
    assert result.code == 0
    assert f"Usage: yard {verb}" in result.out


@pytest.mark.parametrize("words", [(), ("ls",), ("show",), ("attach",), ("wait",)])
def test_help_fits_60_columns(words: tuple[str, ...], yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert [line for line in yard(*words, "--help").out.splitlines() if len(line) > 60] == []


def test_the_help_lists_every_verb(yard: Yard) -> None:
    lines = yard("--help").out.splitlines()
    assert [name for name in VERBS if not any(line.startswith(f"  {name} ") for line in lines)] == []


def test_ls_is_a_table_for_people_and_a_list_for_programs(yard: Yard, stand_in: StandIn) -> None:
    evil = a_job_view(State.FAILED, name="\x1b[31mevil\nname", counts=Counts(total=10, succeeded=9, failed=1))
    stand_in.on("GET /jobs", Said(data=(evil,)))
    lines = yard("ls", "--all", "--state", "failed", "-n", "5").out.splitlines()
    assert lines[0].split() == ["JOB", "ID", "NAME", "STATE", "DONE", "FAILED", "PRIO", "AGE", "TIME", "ETA", "WHAT"]
    assert lines[1].split()[:6] == ["1", "j1", "evil", "name", "FAILED", "10/10"]
    assert stand_in.calls("GET /jobs")[0].query == {"all": "true", "state": "FAILED", "limit": "5"}
    assert json.loads(yard("ls", "-o", "json").out)[0]["counts"]["pending"] == 0
    assert yard("ls", "-q").out == "j1\n"


def test_a_task_that_was_cancelled_is_not_done(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs", Said(data=(a_job_view(State.CANCELLED, started_at=None),)))
    assert yard("ls").out.splitlines()[1].split()[4] == "0/1"


@pytest.mark.parametrize(
    ("state", "failure", "says"),
    [
        (State.SUCCEEDED, None, "job j1 (train) succeeded after 2.5s"),
        (State.CANCELLED, None, "job j1 (train) was cancelled after 2.5s"),
        (State.FAILED, a_failure("0"), "job j1 (train) failed with exit code 3 after 2.5s"),
        (State.FAILED, a_failure("0", exit_code=None), "job j1 (train) failed after 2.5s"),
        (
            State.FAILED,
            a_failure("0", exit_code=None, reason=Reason.UNKNOWN),
            "job j1 (train) failed (Unknown) after 2.5s",
        ),
    ],
)
def test_the_last_line_says_once_how_a_job_ended(
    yard: Yard, stand_in: StandIn, state: State, failure: FailureView | None, says: str
) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(state, first_failure=failure)))
    assert yard("wait", "j1").err.splitlines()[0] == f"yard: {says}"


def test_ls_has_the_server_look_for_the_jobs_that_are_wanted(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs", Said(data=()))
    assert "no such jobs" in yard("ls", "--user", "ben", "--name", "train*", "--since", "2h").err
    (asked,) = stand_in.calls("GET /jobs")
    assert 0 < float(asked.query.pop("since")) < 1e12
    assert asked.query == {"all": "true", "user": "ben", "name": "train*", "limit": "50"}
    refused = yard("ls", "--since", "yesterday")
    assert (refused.code, "--since: cannot read 'yesterday'" in refused.err) == (2, True)


def test_ls_keeps_recent_failures_in_sight(yard: Yard, stand_in: StandIn) -> None:
    newer = [a_job_view(State.SUCCEEDED, id=f"s{n}", number=n) for n in range(90, 10, -1)]
    failed = [a_job_view(State.FAILED, id="s90", number=90), a_job_view(State.FAILED, id="f4", number=4)]
    stand_in.on("GET /jobs", lambda asked: Said(data=failed if asked.query.get("state") else newer[:50]))
    shown = yard("ls").out.splitlines()
    assert [line.split()[1] for line in shown[-2:]] == ["s41", "f4"]
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
    assert "--task LABEL" in result.err


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


def test_cancel_looks_all_jobs_up_before_it_stops_any(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view()))
    stand_in.on("GET /jobs/nojob", problem(404, "not_found", "no job 'nojob'"))
    stand_in.on("POST /jobs/j1/cancel", Said(data=a_job_view(State.STOPPING)))
    assert yard("cancel", "j1", "nojob").code == 2
    assert stand_in.calls("POST /jobs/j1/cancel") == []
    assert "job j1 (train) is stopping" in yard("cancel", "j1", "--force").out
    assert stand_in.calls("POST /jobs/j1/cancel")[0].body == {"force": True}


def test_cancel_of_what_has_ended_says_so_and_is_no_error(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(State.SUCCEEDED)))
    stand_in.on("POST /jobs/j1/cancel", Said(data=a_job_view(State.SUCCEEDED)))
    result = yard("cancel", "j1")
    assert (result.code, result.out) == (0, "job j1 (train) had ended before (succeeded): nothing was cancelled\n")


def test_cancel_all_asks_for_every_job_that_has_not_ended(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs", Said(data=(a_job_view(),)))
    stand_in.on("POST /jobs/j1/cancel", Said(data=a_job_view(State.STOPPING)))
    result = yard("cancel", "--all", "-o", "json")
    assert [job["id"] for job in json.loads(result.out)] == ["j1"]
    assert stand_in.calls("GET /jobs")[0].query == {"unfinished": "true"}


@pytest.mark.parametrize(("state", "code"), [(State.SUCCEEDED, 0), (State.FAILED, 1), (State.CANCELLED, 1)])
def test_wait_ends_with_the_job_and_its_exit_code(yard: Yard, stand_in: StandIn, state: State, code: int) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view()))
    stand_in.on("GET /jobs/j1/watch", Said(events=[("job", "1", a_job_view(state))]))
    assert yard("wait", "j1", "--timeout", "5").code == code


def test_wait_gives_up_at_its_timeout(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view()))
    stand_in.on("GET /jobs/j1/watch", Said(events=[("job", "1", a_job_view())]))
    result = yard("wait", "j1", "--timeout", "0.1")
    assert result.code == 124
    assert "has not ended after 0.1" in result.err


def test_retry_waits_for_a_job_that_still_stops(yard: Yard, stand_in: StandIn) -> None:
    stopping, stopped = a_job_view(State.STOPPING), a_job_view(State.CANCELLED)
    stand_in.on("GET /jobs/last", Said(data=stopping))
    stand_in.on("GET /jobs/j1/watch", Said(events=[("job", "1", stopping), ("job", "2", stopped)]))
    stand_in.on("POST /jobs/j1/retry", Said(data=a_job_view(State.PENDING)))
    result = yard("retry", "last")
    assert (result.code, result.err) == (0, "yard: job j1 (train) still stops; it is tried again after that\n")
    asked = [asked.path for asked in stand_in.asked]
    assert asked.index("/jobs/j1/watch") < asked.index("/jobs/j1/retry")


def test_retry_does_not_wait_for_a_job_that_was_preempted(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(State.STOPPING, reason=Reason.PREEMPTED)))
    stand_in.on("POST /jobs/j1/retry", problem(400, "bad_request", "no failed task"))
    assert yard("retry", "j1").err == "yard: no failed task\n"


@pytest.mark.parametrize("words", [("ls",), ("show", "last"), ("cancel", "last"), ("nodes",), ("token", "create", "x")])
def test_a_misspelt_yard_is_refused_and_not_made(yard: Yard, home: Path, words: tuple[str, ...]) -> None:
    result = yard(*words, "--yard", "tpyo")
    assert (result.code, result.out) == (2, "")
    assert result.err == "yard: --yard: there is no directory 'tpyo'; `yard run --yard tpyo` would make it\n"
    assert "start no server" in yard("run", "--yard", "tpyo", "--", "true").err, "run goes on, and would make it"


def test_retry_names_tasks_and_may_follow(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=ARRAY))
    stand_in.on("POST /jobs/j1/retry", Said(data=ARRAY))
    done: JobView = a_job_view(State.SUCCEEDED, counts=Counts(total=2, succeeded=2))
    stand_in.on("GET /jobs/j1/watch", Said(events=[("job", "1", done)]))
    assert "tries again" in yard("retry", "j1", "--task", "0", "--task", "1").out
    assert stand_in.asked[-1].body == {"tasks": ["0", "1"]}
    assert yard("retry", "j1", "-f").code == 0


def test_why_answers_in_sentences(yard: Yard, stand_in: StandIn) -> None:
    view = WhyView("j1", State.PENDING, Reason.RESOURCES, ("needs 2 GPUs; here has 1 free",))
    stand_in.on("GET /jobs/j1/why", Said(data=view))
    assert yard("why", "j1").out == "job j1 is PENDING (Resources)\n- needs 2 GPUs; here has 1 free\n"


def test_why_of_a_failure_shows_the_command_the_tasks_own_words_and_the_end_of_its_output(
    yard: Yard, stand_in: StandIn
) -> None:
    told = {"reason": Reason.EXIT_CODE, "message": "exited with code 3: no GPU", "command": "python a.py"}
    view = WhyView("j1", State.FAILED, Reason.EXIT_CODE, ("1 of 9 tasks failed",), a_failure(**told))
    stand_in.on("GET /jobs/j1/why", Said(data=view))
    assert yard("why", "j1").out.splitlines()[2:] == [
        "first failure: task 7 on here, exit code 3: no GPU",
        "    $ python a.py",
        "    Traceback",
        "    ValueError: no such file",
    ]


def test_nodes_mark_what_is_fake(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /nodes", Said(data=(NODE,)))
    shown = yard("nodes").out
    assert "H100 (fake)" in shown
    assert "1 of 4" in shown
    assert "yard of bob" in shown
    assert json.loads(yard("nodes", "-o", "json").out)[0]["devices"][0]["fake"] is True


def test_a_dry_run_shows_the_plan_and_render_the_text(yard: Yard, stand_in: StandIn) -> None:
    plan = PlanView(a_job_view(State.PENDING), ("task 0 would start on here",), "argv: true\n")
    stand_in.on("POST /jobs", Said(data=plan))
    assert "task 0 would start on here" in yard("run", "--dry-run", "--", "true").out
    assert yard("submit", "--render", "--", "true").out == "argv: true\n"
    assert [asked.body.get("render", False) for asked in stand_in.calls("POST /jobs")] == [False, True]
    assert all(asked.body["dry_run"] for asked in stand_in.calls("POST /jobs"))


def test_a_verbose_dry_run_has_the_command_of_each_task(yard: Yard, stand_in: StandIn, home: Path) -> None:
    (home / "here" / "files.txt").write_text("a.txt\nb c.txt\n")
    stand_in.on("POST /jobs", Said(data=PlanView(a_job_view(State.PENDING))))
    words = ("run", "--dry-run", "-v", "--each-line", "files.txt", "--", "gzip", "-k", "{}")
    assert yard(*words).out.splitlines()[-3:-1] == ["task 0  gzip -k a.txt", "task 1  gzip -k 'b c.txt'"]
    tasks = json.loads(yard("run", "-o", "json", *words[1:]).out)["tasks"]
    assert tasks[1] == {"label": "1", "command": "gzip -k 'b c.txt'"}


def test_schema_asks_no_server(yard: Yard) -> None:
    assert "properties" in json.loads(yard("schema").out)


def test_doctor_names_the_processes(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /nodes", Said(data=(NODE,)))
    data = json.loads(yard("doctor", "-o", "json").out)
    assert data["server"]["pid"] == SERVER_PID
    assert data["agents"][0]["pid"] == 4712
    assert {check["status"] for check in data["checks"]} == {"ok"}
    shown = yard("doctor")
    assert shown.code == 0
    assert f"pid {SERVER_PID}" in shown.out
    assert "(fake)" in shown.out


def test_doctor_of_a_yard_without_a_node_fails(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /nodes", Said(data=()))
    result = yard("doctor")
    assert result.code == 1
    assert "fail  node" in result.out


def test_server_status_never_starts_one(yard: Yard, home: Path) -> None:
    result = yard("server", "status", "-o", "json")
    assert result.code == 3
    assert json.loads(result.out) == {"running": False}
    assert not (home / "yard").exists()


def test_server_status_shows_the_one_that_runs(yard: Yard, stand_in: StandIn) -> None:
    assert json.loads(yard("server", "status", "-o", "json").out)["pid"] == SERVER_PID
    stand_in.on("GET /server", Said(data=a_server_view(build="old")))
    assert "other code" in yard("server", "status").out


def test_server_logs_are_the_last_lines(yard: Yard, home: Path) -> None:
    assert yard("server", "logs").code == 2
    (home / "yard").mkdir()
    (home / "yard" / "server.log").write_text("one\ntwo\nthree\n")
    assert yard("server", "logs", "--tail", "2").out == "two\nthree\n"


def test_server_stop_is_refused_in_the_servers_words(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("POST /server/stop", problem(409, "bad_request", "2 jobs are pending; --force stops anyway"))
    result = yard("server", "stop")
    assert (result.code, result.err) == (2, "yard: 2 jobs are pending; --force stops anyway\n")


def test_server_stop_asks_the_server_that_yard_url_names(
    yard: Yard, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.on("POST /server/stop", Said(data=a_server_view()))
    monkeypatch.setenv("YARD_URL", f"unix:{stand_in.socket_path}")
    result = yard("server", "stop")
    assert (result.code, result.err) == (0, f"yard: the server at unix:{stand_in.socket_path} stops\n")
    assert len(stand_in.calls("POST /server/stop")) == 1


def test_a_secret_is_printed_once(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("POST /tokens", Said(201, TokenView("t1", "ci", 1000.0, secret="s3cret")))
    stand_in.on("GET /tokens", Said(data=(TokenView("t1", "ci", 1000.0),)))
    stand_in.on("DELETE /tokens/t1", Said(data=TokenView("t1", "ci", 1000.0)))
    assert yard("token", "create", "ci").out == "s3cret\n"
    assert "s3cret" not in yard("token", "ls").out
    assert yard("token", "revoke", "t1").code == 0


def test_a_task_that_ran_out_of_memory_says_so(yard: Yard, stand_in: StandIn) -> None:
    task = TaskView(0, "0", State.FAILED, 1, Reason.OUT_OF_MEMORY, signal=9)
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(State.FAILED)))
    stand_in.on("GET /jobs/j1/tasks", Said(data=(task,)))
    assert "signal 9 (OutOfMemory)" in yard("show", "j1", "--tasks").out


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What `yard serve` would become."""
    commands: list[list[str]] = []

    def become(path: str, words: list[str], environ: dict[str, str]) -> None:
        commands.append(words)
        sys.exit(0)

    monkeypatch.setattr("jobyard.cli.commands.serve.os.execve", become)
    return commands


def test_serve_takes_the_place_of_an_idle_background_server(
    yard: Yard, stand_in: StandIn, served: list[list[str]]
) -> None:
    stand_in.on("POST /server/stop", Said(data=a_server_view()))
    yard("serve", "--listen", "127.0.0.1:7077")
    assert len(stand_in.calls("POST /server/stop")) == 1
    assert served[0][-2:] == ["--listen", "127.0.0.1:7077"]


@pytest.mark.parametrize(
    ("listen", "sentence"), [("unix:/run/y.sock", "yard server stop --force"), ("0.0.0.0:7077", "is served already")]
)
def test_serve_leaves_a_server_alone_that_works_or_serves(
    yard: Yard, stand_in: StandIn, served: list[list[str]], listen: str, sentence: str
) -> None:
    stand_in.on("GET /server", Said(data=a_server_view(listen=listen)))
    stand_in.on("POST /server/stop", problem(409, "bad_request", "2 jobs are not finished"))
    result = yard("serve", "--listen", "127.0.0.1:7077")
    assert (result.code, result.err.count("\n"), served) == (2, 1, [])
    assert sentence in result.err


@pytest.mark.parametrize("number", [10, -5])
def test_priority_lets_a_job_go_earlier_or_later(yard: Yard, stand_in: StandIn, number: int) -> None:
    stand_in.on("POST /jobs/j1/priority", Said(data=a_job_view(priority=number)))
    assert yard("priority", "j1", str(number)).out == f"job j1 (train) has priority {number}\n"
    assert stand_in.calls("POST /jobs/j1/priority")[0].body == {"priority": number}
    assert json.loads(yard("priority", "j1", str(number), "-o", "json").out)["priority"] == number


def test_the_priority_of_a_job_that_has_ended_counts_if_it_is_retried(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("POST /jobs/j1/priority", Said(data=a_job_view(State.FAILED, priority=1)))
    assert yard("priority", "j1", "1").out.endswith("; it failed, so this counts if it is retried\n")


@pytest.mark.parametrize("number", ["high", "1.5", "9" * 20, "--urgent"])
def test_a_priority_that_is_none_gets_one_sentence(yard: Yard, stand_in: StandIn, number: str) -> None:
    result = yard("priority", "j1", number)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith(f"yard: priority: '{number}'")
    assert stand_in.calls("POST /jobs/j1/priority") == []


@pytest.mark.parametrize("words", [(), ("run",), ("nodes",), ("nodes", "drain")])
def test_help_before_a_verb_is_the_option_behind_it(yard: Yard, words: tuple[str, ...]) -> None:
    asked = yard("help", *words)
    assert asked == yard(*words, "--help")
    assert asked.code == 0
    assert f"Usage: yard {' '.join(words)}".rstrip() in asked.out


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("squeue", "yard's word is `yard ls`"),
        ("sbatch", "yard's word is `yard submit`"),
        ("kill", "yard's word is `yard cancel JOB`"),
        ("clean", "yard's word is `yard gc`"),
        (
            "pause",
            "a job cannot be paused: stop it with `yard cancel JOB` and run it again with `yard retry JOB`; a tr",
        ),
        ("renice", "yard's word is `yard priority JOB N`"),
        ("cancle", "did you mean `yard cancel`?"),
        ("shwo", "did you mean `yard show`?"),
    ],
)
def test_a_word_of_another_system_is_answered_with_ours(yard: Yard, word: str, says: str) -> None:
    result = yard(word)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"yard: no verb {word!r}; {says}")
    assert result.err.count("\n") == 1


def test_words_of_other_systems_name_verbs_that_there_are() -> None:
    assert len(OTHER_WORDS) >= 60
    assert OTHER_WORDS.keys().isdisjoint(VERBS)
    for sentence in OTHER_WORDS.values():
        for verb in re.findall(r"`yard ([a-z]\S*)[^`]*`", sentence):
            assert verb in VERBS
