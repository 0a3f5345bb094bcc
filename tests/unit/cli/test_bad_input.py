from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.client.stand_in import Said, StandIn, problem

from jobyard.cli.commands import ls


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rum"], "did you mean `yard run`?"),
        (["frobnicate"], "known: run, submit"),
        (["run"], "write `yard run FILE` or `yard run -- CMD`"),
        (["run", "nofile.txt"], "no file 'nofile.txt'; to run a command write: yard run -- nofile.txt"),
        (["run", "echo", "{lr}", "$lr"], "to run a command write: yard run -- echo {lr} '$lr'"),
        (["run", "--link", "echo", ":::", "a"], "no such option --link; write :::+ before values"),
        (
            ["run", "echo {x}", "--header", ":::", "x", "a"],
            "command: '--header' after the command is a word of it; write flags before it: "
            "yard run --header 'echo {x}'",
        ),
        (["run", "--sweep", "lr=1e-4..1e-2", "--", "echo", "{lr}"], "'1e-4..1e-2' is no range of plain numbers"),
        (["run", "python", "train.py"], "yard run -- python train.py"),
        (["run", "-c", "2", "python", "x.py", "-n", "fit"], "write: yard run -c 2 -- python x.py -n fit"),
        (["submit", "-c2", "echo", "a b"], "write: yard submit -c2 -- echo 'a b'"),
        (["submit", "--on", "my node", "-G", "1"], "write `yard submit --on 'my node' -G 1 FILE` or `yard submit --on"),
        (
            ["submit", "-c", "2", "echo {x}", "--header", ":::", "x", "a"],
            "write flags before it: yard submit -c 2 --header 'echo {x}'",
        ),
        (["run", "-n", "x", "/bin/true", "-c", "2"], "to run it write: yard run -n x -c 2 -- /bin/true"),
        (["run", "x", "--", "true"], "not both"),
        (
            ["run", "-o", "out.txt", "--", "true"],
            "write table or json; for a file of what tasks print write --output out.txt",
        ),
        (["submit", "-oa b", "--", "true"], "--output 'a b'"),
        (["run", "--"], "nothing to run"),
        (["submit"], "yard submit FILE"),
        (
            ["run", "-p", "high", "--", "true"],
            "--priority: 'high' is not a whole number; write a whole number from",
        ),
        (["run", "--cpus", "many", "--", "true"], "many"),
        (["run", "--cpus", "inf", "--", "true"], "--cpus: 'inf' must be 0 or more, and at most 1000000"),
        (["run", "--mem", "9" * 20, "--", "true"], "is too much; at most 1024P is possible"),
        (["run", "--gpu-mem", "9" * 400, "--", "true"], "is too much; at most 1024P is possible"),
        (["run", "--min-gpu-mem", "abc", "--", "true"], "24GiB or a number of GiB"),
        (["run", "-a", "9-0", "--", "true"], "9-0"),
        (["run", "--gpu", "1", "--", "true"], "--gpus"),
        (["run", "-w", "nowhere", "--", "true"], "nowhere"),
        (["ls", "-o", "xml"], "--output: unknown value 'xml'; write table or json"),
        (["ls", "--state", "sleeping"], "sleeping"),
        (["cancel"], "--all"),
        (["cancel", "--all", "j1"], "--all"),
        (["cancel", "--task", "1", "j1", "j2"], "exactly one job"),
        (["wait", "--timeout", "soon", "j1"], "soon"),
        (["serve", "--listen", "7077"], "HOST:PORT"),
        (["show"], "missing argument 'JOB[/TASKS]'"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(yard: Yard, words: list[str], sentence: str) -> None:
    result = yard(*words)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("yard: ")
    assert result.err.count("\n") == 1
    assert sentence in result.err


@pytest.mark.parametrize("verb", ["cancel", "show", "wait", "logs", "why", "retry"])
def test_an_empty_word_for_a_job_is_one_sentence_before_any_request(yard: Yard, stand_in: StandIn, verb: str) -> None:
    result = yard(verb, "")
    assert (result.code, result.out) == (2, "")
    assert result.err == "yard: the name of the job is empty; `yard ls -a` lists them\n"
    assert {asked.path for asked in stand_in.asked} <= {"/server"}


@pytest.mark.parametrize("selector", ["../nodes", "..", "."])
def test_a_word_that_would_be_another_path_names_no_job(yard: Yard, stand_in: StandIn, selector: str) -> None:
    result = yard("show", selector)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert f"no job {selector.partition('/')[0]!r} can be asked for by that name" in result.err


def test_a_pipe_with_a_name_is_refused_and_not_waited_for(yard: Yard) -> None:
    os.mkfifo("pipe")
    result = yard("run", "pipe")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "'pipe' is no regular file" in result.err


def test_a_pipe_that_the_shell_has_opened_is_read(yard: Yard) -> None:
    reading, writing = os.pipe()
    try:
        os.close(writing)
        assert "regular" not in yard("run", f"/dev/fd/{reading}").err
    finally:
        os.close(reading)


def test_bad_input_starts_no_server_and_leaves_nothing_behind(yard: Yard, home: Path) -> None:
    yard("run", "nofile.txt")
    yard("run", "-c", "many", "--", "true")
    assert not (home / "yard").exists()


def test_a_file_in_the_place_of_a_verb_is_recognised(yard: Yard) -> None:
    Path("jobs.txt").write_text("true\n")
    assert "yard run jobs.txt" in yard("jobs.txt").err


def test_an_error_of_the_server_is_one_sentence(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/nojob", problem(404, "not_found", "no job 'nojob';\nsee `yard ls`"))
    result = yard("show", "nojob")
    assert result.code == 2
    assert result.err == "yard: no job 'nojob'; see `yard ls`\n"


def test_a_yard_that_is_not_there_is_exit_code_3(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARD_URL", "http://127.0.0.1:1")
    result = yard("ls")
    assert result.code == 3
    assert "http://127.0.0.1:1" in result.err
    assert "YARD_URL" in result.err


def test_a_bug_is_one_sentence_and_a_report(
    yard: Yard, home: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        raise ZeroDivisionError("secret details")

    monkeypatch.setattr(ls, "print_json", explode)
    stand_in.on("GET /jobs", Said(data=()))
    result = yard("ls", "-o", "json")
    assert result.code == 1
    assert "ZeroDivisionError" in result.err
    assert "Traceback" not in result.err
    (report,) = (home / "state" / "jobyard").iterdir()
    assert str(report) in result.err
    assert "secret details" in report.read_text()
    assert report.stat().st_mode & 0o777 == 0o600


def test_a_traceback_is_shown_to_who_asks_for_it(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARD_DEBUG", "1")
    assert "Traceback" in yard("run", "nofile.txt").err


def test_a_current_directory_that_is_gone_is_said(yard: Yard, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    result = yard("run", "--", "true")
    assert result.code == 2
    assert "current directory" in result.err


def test_a_bad_knob_is_said(yard: Yard, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "yard").mkdir()
    monkeypatch.setenv("YARD_START_SECONDS", "soon")
    result = yard("ls")
    assert result.code == 2
    assert "YARD_START_SECONDS" in result.err


@pytest.mark.parametrize("words", [[], ["server"], ["token"]])
def test_no_verb_shows_the_help(yard: Yard, words: list[str]) -> None:
    result = yard(*words)
    assert result.code == 2
    assert "Usage: yard" in result.out + result.err


@pytest.mark.parametrize("words", [("run",), ("submit",), ("submit", "--dry-run")])
def test_a_refusal_of_the_server_names_what_was_written(yard: Yard, stand_in: StandIn, words: tuple[str, ...]) -> None:
    Path("job.yaml").write_text("command: x\nafter: 7\n")
    stand_in.on("POST /jobs", problem(400, "bad_request", "--after: there is no job 7", "--after"))
    result = yard(*words, "job.yaml")
    assert (result.code, result.err) == (2, "yard: job.yaml: line 2: after: there is no job 7\n")
