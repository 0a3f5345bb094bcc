from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Said, StandIn, problem
from tests.unit.client.views import NODE, SERVER_PID, a_failure, a_job_view, a_server_view

from jobyard.model.job import Reason, State
from jobyard.wire.views import (
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


@pytest.mark.parametrize(
    ("state", "failure", "says"),
    [
        (State.SUCCEEDED, None, "job 1 (train) succeeded after 2.5s"),
        (State.CANCELLED, None, "job 1 (train) was cancelled after 2.5s"),
        (State.FAILED, a_failure("0"), "job 1 (train) failed with exit code 3 after 2.5s"),
        (State.FAILED, a_failure("0", exit_code=None), "job 1 (train) failed after 2.5s"),
        (
            State.FAILED,
            a_failure("0", exit_code=None, reason=Reason.UNKNOWN),
            "job 1 (train) failed (Unknown) after 2.5s",
        ),
    ],
)
def test_the_last_line_says_once_how_a_job_ended(
    yard: Yard, stand_in: StandIn, state: State, failure: FailureView | None, says: str
) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(state, first_failure=failure)))
    assert yard("wait", "j1").err.splitlines()[0] == f"yard: {says}"


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
    assert "job 1 (train) is stopping" in yard("cancel", "j1", "--force").out
    assert stand_in.calls("POST /jobs/j1/cancel")[0].body == {"force": True}


def test_cancel_of_what_has_ended_says_so_and_is_no_error(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(State.SUCCEEDED)))
    stand_in.on("POST /jobs/j1/cancel", Said(data=a_job_view(State.SUCCEEDED)))
    result = yard("cancel", "j1")
    assert (result.code, result.out) == (0, "job 1 (train) had ended before (succeeded): nothing was cancelled\n")


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
    assert (result.code, result.err) == (0, "yard: job 1 (train) still stops; it is tried again after that\n")
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


@pytest.mark.parametrize("words", [("ls",), ("show", "last"), ("cancel", "last"), ("nodes",)])
def test_a_misspelt_yard_of_the_environment_is_refused_and_not_made(
    yard: Yard, home: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YARD_DIR", "tpyo")
    result = yard(*words)
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "yard: YARD_DIR: there is no directory 'tpyo'; correct it, or `yard run -- CMD` makes that yard\n"
    )
    assert not (home / "here" / "tpyo").exists()
    assert "start no server" in yard("run", "--", "true").err, "run goes on, and would make it"


def test_cancel_takes_tasks_of_several_jobs(yard: Yard, stand_in: StandIn) -> None:
    for job in ("j1", "j2"):
        stand_in.on(f"GET /jobs/{job}", Said(data=a_job_view(State.RUNNING, id=job)))
        stand_in.on(f"POST /jobs/{job}/cancel", Said(data=a_job_view(State.RUNNING, id=job)))
    result = yard("cancel", "j1/3-7,9", "j2", "j1/12")
    assert (result.code, result.out.splitlines()) == (
        0,
        ["job 1 (train): stopping tasks 3-7, 9, 12", "job 2 (train) is running"],
    )
    assert stand_in.calls("POST /jobs/j1/cancel")[0].body == {"tasks": ["3-7", "9", "12"]}
    assert stand_in.calls("POST /jobs/j2/cancel")[0].body == {}
    assert yard("cancel", "j1/3").out == "job 1 (train): stopping task 3\n"
    assert yard("cancel", "j1", "--pending").out == "job 1 (train): stopping its tasks that wait\n"
    assert stand_in.calls("POST /jobs/j1/cancel")[-1].body == {"states": ["PENDING"]}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("j1", "j2", "--task", "3"), "--task: name exactly one job whose tasks are meant, or write JOB/TASKS as in"),
        (("j1/",), "has no task after the slash; write JOB/TASKS"),
        (("j1/3", "--checkpoint"), "--checkpoint: it is for whole jobs that you name; leave the tasks out"),
        (("j1", "--pending", "--checkpoint"), "leave --pending out"),
    ],
)
def test_tasks_that_cannot_be_meant_are_refused(
    words: tuple[str, ...], says: str, yard: Yard, stand_in: StandIn
) -> None:
    stand_in.on("GET /jobs/j1", Said(data=ARRAY))
    result = yard("cancel", *words)
    assert (result.code, result.out) == (2, "")
    assert says in result.err
    assert stand_in.calls("POST /jobs/j1/cancel") == []


def test_retry_takes_tasks_of_several_jobs_and_states(yard: Yard, stand_in: StandIn) -> None:
    for job in ("j1", "j2"):
        stand_in.on(f"GET /jobs/{job}", Said(data=a_job_view(State.FAILED, id=job)))
        stand_in.on(f"POST /jobs/{job}/retry", Said(data=a_job_view(State.PENDING, id=job)))
    assert yard("retry", "j1/3,5", "j2", "--failed", "-q").out == "1\n2\n"
    assert stand_in.calls("POST /jobs/j1/retry")[0].body == {"tasks": ["3", "5"], "states": ["FAILED"]}
    assert stand_in.calls("POST /jobs/j2/retry")[0].body == {"states": ["FAILED"]}
    assert "--follow: one job can be followed" in yard("retry", "j1", "j2", "-f").err


def test_retry_names_tasks_and_may_follow(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=ARRAY))
    stand_in.on("POST /jobs/j1/retry", Said(data=ARRAY))
    done: JobView = a_job_view(State.SUCCEEDED, counts=Counts(total=2, succeeded=2))
    stand_in.on("GET /jobs/j1/watch", Said(events=[("job", "1", done)]))
    assert "tries again" in yard("retry", "j1", "--task", "0", "--task", "1").out
    assert stand_in.asked[-1].body == {"tasks": ["0", "1"]}
    assert yard("retry", "j1", "-f").code == 0


def test_why_answers_in_sentences(yard: Yard, stand_in: StandIn) -> None:
    view = WhyView("j1", State.PENDING, Reason.RESOURCES, ("needs 2 GPUs; here has 1 free",), number=1)
    stand_in.on("GET /jobs/j1/why", Said(data=view))
    assert yard("why", "j1").out == "job 1 is PENDING (Resources)\n- needs 2 GPUs; here has 1 free\n"


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


def test_a_word_with_a_slash_names_tasks_for_why_logs_and_show(yard: Yard, stand_in: StandIn) -> None:
    view = WhyView("j1", State.FAILED, Reason.EXIT_CODE, ("exited with code 3",), a_failure(command="./a"), 1)
    stand_in.on("GET /jobs/j1/why", Said(data=view))
    assert yard("why", "j1/7").out.splitlines() == [
        "task 7 of job 1 is FAILED (ExitCode)",
        "- exited with code 3",
        "    $ ./a",
        "    Traceback",
        "    ValueError: no such file",
    ]
    stand_in.on("GET /jobs/j1", Said(data=ARRAY))
    stand_in.on("GET /jobs/j1/logs/raw", lambda asked: Said(data=asked.query["task"].encode()))
    assert yard("logs", "j1/1", "--raw").out == "1"
    task = TaskView(1, "1", State.SUCCEEDED, 1, node="here", command="./b", stdout="/yard/1.out", exit_code=0)
    stand_in.on("GET /jobs/j1/tasks", Said(data=(task,)))
    shown = yard("show", "j1/1")
    assert shown.out.splitlines()[0].split() == ["task", "1", "of", "job", "1", "(train)"]
    assert "/yard/1.out" in shown.out
    assert stand_in.asked[-1].query == {"limit": "100", "task": "1", "paths": "true"}
    assert json.loads(yard("show", "j1", "--task", "1", "-o", "json").out)[0]["stdout"] == "/yard/1.out"


def test_a_task_whose_output_is_packed_names_the_command_that_prints_it(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=ARRAY))
    task = TaskView(1, "1", State.SUCCEEDED, 1, node="here", exit_code=0)
    stand_in.on("GET /jobs/j1/tasks", Said(data=(task,)))
    assert yard("show", "j1/1").out.splitlines()[-1].split(maxsplit=1) == ["output", "`yard logs 1/1`"]
    stand_in.on("GET /jobs/j1/tasks", Said(data=(TaskView(1, "1", State.PENDING),)))
    assert "yard logs" not in yard("show", "j1/1").out


@pytest.mark.parametrize("verb", ["why", "logs", "show"])
def test_a_slash_without_a_task_is_refused(yard: Yard, verb: str) -> None:
    result = yard(verb, "17/")
    assert (result.code, result.err) == (
        2,
        "yard: '17/' has no task after the slash; write JOB/TASKS, as in 17/3 or 17/3-7\n",
    )


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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("echo {1} {2}", ":::", "a", ":::", "b"), "echo a b"),
        (("-c", "2", "grep", "-c", "x", "{}", ":::", "-q"), "grep -c x -q"),
        (("-c", "2", "--", "grep", "-c", "x", "{}", ":::", "a", "--"), "grep -c x a"),
        (("--header", ":", "echo", "{lr}", ":::", "lr", "1"), "echo 1"),
        (("-N2", "echo", "{2}", "{1}", ":::", "a", "b"), "echo b a"),
        (("./job.sh", "-v", "{}", ":::", "a"), "job.sh -v a"),
        (("./job.sh", ":::", "a"), "job.sh a"),
        (("./prog", "-x", ":::", "a"), "./prog -x a"),
        (("./job.sh", "--", "-v", "{}", ":::", "a"), "job.sh -v a"),
        (("--sweep", "n=1..1", "--", "echo", "{n}"), "echo 1"),
    ],
)
def test_values_follow_a_command_a_program_or_a_script(
    yard: Yard, stand_in: StandIn, home: Path, words: tuple[str, ...], told: str
) -> None:
    (home / "here" / "job.sh").write_text("#!/bin/sh\n")
    (home / "here" / "prog").write_bytes(b"\x7fELF")
    (home / "here" / "prog").chmod(0o755)
    stand_in.on("POST /jobs", Said(data=PlanView(a_job_view(State.PENDING))))
    assert f"task 0  {told}" in yard("run", "--dry-run", "-v", *words).out.splitlines()


@pytest.mark.parametrize("words", [(":::", "a"), ("x", ":::"), ("list.txt", ":::", "a"), ("x", ":::+", "a")])
def test_values_without_a_command_are_refused(
    yard: Yard, stand_in: StandIn, home: Path, words: tuple[str, ...]
) -> None:
    (home / "here" / "list.txt").write_text("echo a\n")
    result = yard("run", *words)
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert not stand_in.calls("POST /jobs")


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


def test_doctor_tells_of_a_node_whose_agent_lies(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /nodes", Said(data=(replace(NODE, problem="its agent said 7 times what cannot be"),)))
    result = yard("doctor")
    assert result.code == 0
    assert f"warn  node     {NODE.id}: its agent said 7 times what cannot be" in result.out


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
    assert yard("priority", "j1", str(number)).out == f"job 1 (train) has priority {number}\n"
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
