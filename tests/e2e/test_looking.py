"""`ls`, `show`, `logs`, `why`, `nodes`, `schema`, `doctor`, selectors, and JSON from every verb."""

from __future__ import annotations

import json
import os
import re

import pytest

from tests.waiting import PATIENCE_SECONDS, until
from tests.yards import TemporaryYard, is_alive


@pytest.fixture(scope="module")
def two_jobs(shared_yard: TemporaryYard) -> tuple[str, str]:
    """An array with a failure, named `mixed`, and a single task, named `single`."""
    line = 'echo "out $YARD_TASK"; echo "err $YARD_TASK" >&2; [ "$YARD_TASK" != 1 ]'
    array = shared_yard.run("run", "-q", "-n", "mixed", "-a", "0-2", "--cpus", "0.1", "--", line).out.strip()
    single = shared_yard.ok("run", "-q", "-n", "single", "--", r"printf 'a\r\n\000\377\nno newline'").out.strip()
    return array, single


def test_ls_lists_the_newest_first(yard: TemporaryYard, two_jobs: tuple[str, str]) -> None:
    lines = yard.ok("ls").out.splitlines()
    assert lines[0].split() == ["JOB", "NAME", "STATE", "DONE", "FAILED", "PRIO", "AGE", "TIME", "ETA", "WHAT"]
    numbers = [line.split()[0] for line in lines[1:]]
    assert numbers.index(two_jobs[1]) < numbers.index(two_jobs[0])
    (row,) = [line for line in lines if line.split()[0] == two_jobs[0]]
    assert re.match(rf"{two_jobs[0]} +mixed +FAILED +3/3 +1 ", row)
    assert two_jobs[1] in yard.ok("ls", "-q").out.split()
    assert two_jobs[0] in yard.ok("ls", "-q", "--state", "failed").out.split()
    assert two_jobs[1] not in yard.ok("ls", "-q", "--state", "failed").out.split()
    assert len(yard.ok("ls", "-q", "-a", "-n", "1").out.split()) == 1


def test_ls_of_an_empty_yard_says_what_to_do(own_yard: TemporaryYard) -> None:
    done = own_yard.ok("ls")
    assert done.out == ""
    assert "yard run -- CMD" in done.err


def test_show_tells_all_of_a_job(yard: TemporaryYard, two_jobs: tuple[str, str]) -> None:
    text = yard.ok("show", "mixed", "--tasks").out
    for expected in ("FAILED (ExitCode)", "2 succeeded, 1 failed of 3", "0.1 cpus", "first failure: task 1", "err 1"):
        assert expected in text
    rows = [line for line in text.splitlines() if re.match(r"[012] +(SUCCEEDED|FAILED) +1 ", line)]
    assert len(rows) == 3


def test_a_task_that_ended_keeps_the_node_it_ran_on(yard: TemporaryYard, two_jobs: tuple[str, str]) -> None:
    text = yard.ok("show", "single", "--tasks").out
    assert "SUCCEEDED" in text


@pytest.mark.parametrize("how", ["id", "prefix", "name", "number", "last"])
def test_a_job_is_named_in_several_ways(yard: TemporaryYard, how: str) -> None:
    number = yard.ok("run", "-q", "-n", "chosen", "--", "true").out.strip()
    job = yard.job(number)["id"]
    selector = {
        "id": job,
        "prefix": job[:7],
        "name": "chosen",
        "number": number,
        "last": "last",
    }[how]
    assert yard.json("show", selector)["id"] == job


def test_an_ambiguous_prefix_is_refused_with_the_candidates(yard: TemporaryYard) -> None:
    ids: dict[str, str] = {}
    while True:
        new = yard.submit("--cpus", "0.1", "--", "true")
        if new[0] in ids and not new[0].isdigit():
            break
        ids[new[0]] = new
    done = yard.run("show", new[0])
    assert done.code == 2
    assert "could be" in done.err
    assert "give more letters" in done.err


def test_logs_of_one_task_keep_stdout_and_stderr_apart(yard: TemporaryYard, two_jobs: tuple[str, str]) -> None:
    done = yard.ok("logs", "mixed", "--task", "1")
    assert (done.out, done.err) == ("out 1\n", "err 1\n")
    assert yard.ok("logs", "mixed", "--task", "1", "--stream", "err").out == "err 1\n"


def test_logs_of_several_tasks_are_merged_with_prefixes(yard: TemporaryYard, two_jobs: tuple[str, str]) -> None:
    lines = yard.ok("logs", "mixed").out.splitlines()
    assert sorted(lines) == sorted(f"{i}| {stream} {i}" for i in range(3) for stream in ("out", "err"))


def test_raw_logs_are_the_bytes_that_were_written(yard: TemporaryYard, two_jobs: tuple[str, str]) -> None:
    written = b"a\r\n\x00\xff\nno newline"
    assert yard.ok("logs", "single", "--raw").stdout == written
    assert yard.ok("logs", "single").stdout == written


def test_the_tail_of_a_log_is_its_last_lines(yard: TemporaryYard) -> None:
    yard.ok("run", "-q", "--", "seq", "1000")
    assert yard.ok("logs", "last", "--tail", "2").out == "999\n1000\n"
    assert yard.ok("logs", "last", "--tail", "0").out == ""
    assert yard.ok("logs", "last").out == "".join(f"{number}\n" for number in range(1, 1001))


def test_a_large_output_arrives_complete(yard: TemporaryYard) -> None:
    done = yard.ok("run", "--", "seq 200000; echo done >&2")
    assert done.out == "".join(f"{number}\n" for number in range(1, 200_001))


def test_following_a_log_shows_lines_as_they_come_and_ends_with_the_job(yard: TemporaryYard) -> None:
    job = yard.submit("--", "echo one; while [ ! -e go-on ]; do sleep 0.02; done; echo two")
    with yard.start("logs", "-f", job) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == b"one\n"
        assert following.poll() is None
        yard.write("go-on", "")
        assert following.stdout.read() == b"two\n"
        assert following.wait(PATIENCE_SECONDS) == 0


def test_following_an_array_brings_every_line_once(yard: TemporaryYard) -> None:
    job = yard.submit("-a", "0-19", "--cpus", "0.2", "--", "echo a $YARD_TASK; sleep 0.05; echo b $YARD_TASK")
    lines = yard.ok("logs", "-f", job).out.splitlines()
    assert sorted(lines) == sorted(f"{i}| {word} {i}" for i in range(20) for word in "ab")


def test_logs_of_a_task_or_attempt_that_is_not_there_say_so(yard: TemporaryYard, two_jobs: tuple[str, str]) -> None:
    for words in (["--task", "9"], ["--task", "0", "--attempt", "5"], ["--task", "x"]):
        done = yard.run("logs", "mixed", *words)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_logs_of_a_task_that_has_not_started_are_empty_or_say_so(yard: TemporaryYard) -> None:
    blocker = yard.submit("--cpus", "2", "-p", "5", "--", "sleep", "60")
    waiting = yard.submit("--cpus", "2", "--", "true")
    done = yard.run("logs", waiting)
    assert "Traceback" not in done.err
    assert done.err.count("\n") <= 1
    assert yard.job(blocker)["state"] != "FAILED"


def test_why_says_who_is_ahead_and_what_is_missing(yard: TemporaryYard) -> None:
    yard.submit("--cpus", "2", "--", "sleep", "60")
    waiting = yard.submit("--cpus", "2", "--", "true")
    text = yard.ok("why", waiting).out
    assert "PENDING (Resources)" in text
    assert "needs 2 cpus" in text
    assert "1 unfinished job is ahead of it" in text


def test_why_of_a_failed_job_says_why_it_failed(yard: TemporaryYard, two_jobs: tuple[str, str]) -> None:
    text = yard.ok("why", "mixed").out
    assert "FAILED (ExitCode)" in text
    assert "1 of 3 tasks failed" in text


def test_nodes_show_what_is_there_and_what_is_reserved(yard: TemporaryYard) -> None:
    yard.wait_state(yard.submit("--cpus", "0.5", "--mem", "100M", "--", "sleep", "60"), "RUNNING")
    (node,) = yard.json("nodes")
    assert node["id"] == os.uname().nodename.split(".")[0]
    assert (node["cpu_millis_reserved"], node["memory_mib_reserved"], node["tasks"]) == (500, 100, 1)
    assert "0.5 of" in yard.ok("nodes").out


def test_the_schema_is_a_json_schema(yard: TemporaryYard) -> None:
    schema = yard.ok("schema").json
    assert "properties" in schema
    assert schema == yard.json("schema")


def test_the_doctor_knows_every_process(yard: TemporaryYard) -> None:
    data = yard.json("doctor")
    assert is_alive(data["server"]["pid"])
    assert all(is_alive(agent["pid"]) for agent in data["agents"])
    assert all(check["status"] in ("ok", "warn") for check in data["checks"])
    assert "ok    server" in yard.ok("doctor").out


def test_every_verb_speaks_json(yard: TemporaryYard, two_jobs: tuple[str, str]) -> None:
    job, _ = two_jobs
    calls = [
        ["ls"],
        ["show", job],
        ["show", job, "--tasks"],
        ["why", job],
        ["nodes"],
        ["schema"],
        ["doctor"],
        ["server", "status"],
        ["server", "start"],
        ["server", "logs"],
        ["token", "ls"],
        ["cancel", job],
        ["submit", "--", "true"],
        ["run", "--", "true"],
        ["wait", "last"],
        ["run", "--dry-run", "--", "true"],
        ["run", "--render", "--", "true"],
        ["retry", job],
    ]
    for call in calls:
        yard.json(*call)
    token = yard.json("token", "create", "laptop")
    assert yard.json("token", "revoke", token["id"]) == {"revoked": token["id"]}
    for line in yard.ok("logs", job, "-o", "json").out.splitlines():
        assert set(json.loads(line)) >= {"task", "attempt", "stream", "data"}


def test_wait_returns_with_the_jobs_result(yard: TemporaryYard) -> None:
    good, bad = yard.submit("--", "sleep", "0.2"), yard.submit("--", "exit 4")
    assert yard.run("wait", good).code == 0
    assert yard.run("wait", bad).code == 1
    assert yard.run("wait", "--exit-code", bad).code == 4
    assert yard.run("wait", good, bad).code == 1
    slow = yard.submit("--", "sleep", "60")
    done = yard.run("wait", "--timeout", "0.2s", slow)
    assert done.code == 124
    assert yard.job(slow)["finished_at"] is None


def test_retry_runs_only_what_failed(yard: TemporaryYard) -> None:
    line = "echo try $YARD_ATTEMPT; [ -e repaired ] || [ $YARD_TASK != 1 ]"
    job = yard.run("run", "-q", "-a", "0-2", "--cpus", "0.1", "--", line).out.strip()
    assert yard.run("retry", "-f", job).code == 1
    yard.write("repaired", "")
    assert "tries again" in yard.ok("retry", job).out
    assert yard.run("wait", job).code == 0
    assert [task["attempt"] for task in yard.tasks(job)] == [1, 3, 1]
    done = yard.run("retry", job)
    assert (done.code, done.err.count("\n")) == (2, 1)
    yard.ok("retry", job, "--task", "0")
    until(lambda: yard.job(job)["state"] == "SUCCEEDED")
    assert yard.tasks(job)[0]["attempt"] == 2


def test_the_output_of_tasks_on_this_machine_can_be_fetched(yard: TemporaryYard) -> None:
    line = "echo out $YARD_TASK; echo err >&2; echo kept > $YARD_OUTPUT_DIR/kept"
    job = yard.ok("run", "-q", "-a", "0-1", "--", line).out.strip()
    yard.ok("fetch", job, "--to", "here")
    home = yard.work / "here" / yard.job(job)["id"]
    files = {str(path.relative_to(home)): path.read_text() for path in home.rglob("*") if path.is_file()}
    per_task = {"{}.out": "out {}\n", "{}.err": "err\n", "{}/output/kept": "kept\n"}
    assert files == {name.format(task): text.format(task) for task in (0, 1) for name, text in per_task.items()}
    yard.ok("fetch", f"{job}/1", "--to", "one")
    one = {path.name for path in (yard.work / "one").rglob("*") if path.is_file()}
    assert one == {"1.out", "1.err", "kept"}
    assert "has no task '7'" in yard.run("fetch", f"{job}/7").err
    assert yard.ok("cat", f"{job}/1").out == "out 1\n"


def test_each_task_has_a_file_of_its_output_as_it_came(yard: TemporaryYard) -> None:
    line = "echo out; echo err >&2; echo last $YARD_TASK"
    job = yard.ok("submit", "-q", "--output", "logs/%x-%t.out", "-n", "a job", "-a", "0-1", "--", line).out.strip()
    yard.ok("wait", job)
    assert [(yard.work / "logs" / f"a job-{task}.out").read_text() for task in (0, 1)] == [
        f"out\nerr\nlast {task}\n" for task in (0, 1)
    ]
    assert yard.ok("logs", f"{job}/1").out == "out\nerr\nlast 1\n"
    assert json.loads(yard.ok("show", f"{job}/1", "-o", "json").out)[0]["stdout"] == str(yard.work / "logs/a job-1.out")
