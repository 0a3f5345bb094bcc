from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Said, StandIn
from tests.unit.client.views import NODE, a_failure, a_job_view

from jobyard.model.job import Reason, State
from jobyard.wire.views import (
    Counts,
    FailureView,
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
