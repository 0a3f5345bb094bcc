"""`yard run`: what people type first."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.marks import long
from tests.yards import ROOT, TemporaryYard

AICHOR = sorted((ROOT / "examples" / "aichor").glob("manifest.*.yaml"))


def test_a_command_runs_as_if_it_ran_here(yard: TemporaryYard) -> None:
    done = yard.ok("run", "--", "bash", "-c", "echo out; echo err >&2; pwd")
    assert done.out == f"out\n{yard.work}\n"
    assert "err\n" in done.err
    assert re.search(r"yard: job \d+ \(echo\) submitted\n", done.err)
    assert re.search(r"yard: job \d+ \(echo\) succeeded after ", done.err)


def test_words_are_passed_on_exactly(yard: TemporaryYard) -> None:
    words = ["a b", "", "$HOME", "*", "'", "ä", "-n", "--"]
    assert yard.ok("run", "--", "printf", "<%s>", *words).out == "".join(f"<{word}>" for word in words)


def test_one_word_with_blanks_is_a_line_of_bash(yard: TemporaryYard) -> None:
    assert yard.ok("run", "--", "for i in 1 2; do echo $((i * 21)); done | tail -1").out == "42\n"


def test_a_task_reads_nothing_from_the_terminal(yard: TemporaryYard) -> None:
    assert yard.ok("run", "--", "cat; echo end", input="should not come").out == "end\n"


def test_a_batch_file_runs_a_task_per_line(yard: TemporaryYard) -> None:
    text = "# a comment\n#YARD --name many --cpus 0.1\n\necho one\necho two && echo deux\n   \n(exit 0)\n"
    done = yard.ok("run", yard.write("jobs.txt", text))
    assert "3 succeeded of 3" in done.err
    job = yard.job()
    assert (job["name"], job["counts"]["total"], job["groups"][0]["resources"]["cpu_millis"]) == ("many", 3, 100)
    assert sorted(yard.logs().splitlines()) == ["0| one", "1| deux", "1| two"]


def test_a_batch_comes_from_stdin_too(yard: TemporaryYard) -> None:
    yard.ok("run", "-", input="echo one\necho two\n")
    assert yard.job()["counts"]["succeeded"] == 2


def test_a_line_that_bash_cannot_read_is_refused_with_the_way_out(yard: TemporaryYard) -> None:
    done = yard.run("run", yard.write("list.txt", "for i in 1 2\ndo echo $i\ndone\n"))
    assert (done.code, done.out) == (2, "")
    assert "line 1" in done.err
    assert "yard run -- bash list.txt" in done.err


@pytest.mark.parametrize("name", ["array.yaml", "groups.yaml", "retries.yaml", "each-line.json", "sweep.yaml"])
def test_a_native_example_runs(yard: TemporaryYard, name: str) -> None:
    yard.ok("run", f"examples/native/{name}", cwd=ROOT)
    assert yard.job()["source"] == "native"


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [*AICHOR[:2], *long(*AICHOR[2:])], ids=lambda path: path.stem.removeprefix("manifest.")
)
def test_an_aichor_scenario_covers_every_item_once(yard: TemporaryYard, path: Path) -> None:
    done = yard.ok("run", path.name, "--cpus", "0.1", cwd=path.parent)
    assert re.search(r"note: .*jobset.*", done.err), done.err
    ranges = re.findall(r"items (\d+) to (\d+)", yard.logs())
    covered = Counter(item for first, last in ranges for item in range(int(first), int(last) + 1))
    assert covered == Counter(range(1, 1001))


def test_the_exit_code_says_whether_all_succeeded(yard: TemporaryYard) -> None:
    assert yard.run("run", "--", "true").code == 0
    failed = yard.run("run", "--", "exit 7")
    assert failed.code == 1
    assert "exit code 7" in failed.err
    assert f"yard logs {yard.job()['number']}" in failed.err


@pytest.mark.parametrize(("line", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("true", 0), ("exit 2", 2)])
def test_exit_code_passes_the_tasks_own_code_through(yard: TemporaryYard, line: str, code: int) -> None:
    assert yard.run("run", "--exit-code", "--", "bash", "-c", line).code == code


def test_a_program_that_does_not_exist_fails_with_a_sentence(yard: TemporaryYard) -> None:
    done = yard.run("run", "--exit-code", "--", "no-such-program")
    assert done.code == 127
    assert "no-such-program" in done.err
    assert "Traceback" not in done.err


def test_quiet_prints_the_id_and_nothing_else(yard: TemporaryYard) -> None:
    done = yard.ok("run", "-q", "--", "echo hello; echo oh >&2")
    assert re.fullmatch(r"\d+\n", done.out)
    assert done.err == ""
    assert yard.logs(done.out.strip()) == "hello\n"


def test_json_has_the_result_on_stdout_and_the_output_on_stderr(yard: TemporaryYard) -> None:
    done = yard.ok("run", "-o", "json", "--", "echo", "hello")
    assert done.json["state"] == "SUCCEEDED"
    assert "hello" in done.err


def test_submit_returns_at_once_with_the_id(yard: TemporaryYard) -> None:
    done = yard.ok("submit", "--", "sleep", "30")
    assert re.fullmatch(r"\d+\n", done.out)
    assert yard.job(done.out.strip())["state"] in ("PENDING", "STARTING", "RUNNING")
    assert re.fullmatch(r"\d+\n", yard.ok("run", "--detach", "--", "true").out)


def test_variables_and_workdir_are_given_by_flag(yard: TemporaryYard) -> None:
    (yard.work / "below").mkdir(exist_ok=True)
    done = yard.ok(
        "run",
        "-e",
        "A=1",
        "--env",
        "B=x=y",
        "-e",
        "FROM_SHELL",
        "-w",
        "below",
        "--",
        'echo "$A $B $FROM_SHELL"; pwd',
        env={"FROM_SHELL": "shell"},
    )
    assert done.out == f"1 x=y shell\n{yard.work}/below\n"


def test_render_shows_the_same_when_the_machine_is_full(yard: TemporaryYard) -> None:
    (node,) = yard.json("nodes")
    job = yard.submit("--cpus", str(node["cpu_millis"] // 1000), "--", "sleep", "1000")
    assert '"op": "launch"' in yard.ok("run", "--render", "--", "echo", "look-here").out
    yard.ok("cancel", job)


def test_dry_run_and_render_submit_nothing(yard: TemporaryYard) -> None:
    before = len(yard.json("ls", "-a"))
    plan = yard.ok("run", "--dry-run", "-a", "0-3", "--cpus", "0.5", "--", "echo", "hi").out
    assert "tasks    4" in plan
    assert "nothing was submitted" in plan
    rendered = yard.ok("run", "--render", "-e", "TOKEN=geheim", "--", "echo", "look-here").out
    assert "look-here" in rendered
    assert '"op": "launch"' in rendered
    assert "JOBYARD_TEST_YARD" not in rendered  # the shell's own variables stay private
    assert yard.json("run", "--dry-run", "--", "true")["job"]["counts"]["total"] == 1
    assert len(yard.json("ls", "-a")) == before


def test_a_pipe_is_not_held_open_by_the_background_server(own_yard: TemporaryYard) -> None:
    line = " ".join(own_yard.command("run", "--", "true")) + " 2>&1 | cat"
    done = subprocess.run(["bash", "-c", line], env=own_yard.env, cwd=own_yard.work, capture_output=True, timeout=60)
    assert b"succeeded" in done.stdout
    pid = own_yard.server_pid()
    assert pid is not None
    targets = [(descriptor.readlink()) for descriptor in Path(f"/proc/{pid}/fd").iterdir() if descriptor.is_symlink()]
    assert not [target for target in targets if "pts" in str(target) or str(own_yard.work) in str(target)]
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")


def test_what_is_piped_in_reaches_each_task_and_their_output_can_be_piped_on(yard: TemporaryYard) -> None:
    words = ["--cat", "--stdin", "-", "--joblog", "log.tsv", "-a", "3-5"]
    done = yard.ok("run", *words, "--", "bash", "-c", "cat; echo $YARD_TASK", input="hi\n")
    assert done.out == "hi\n3\nhi\n4\nhi\n5\n"
    assert "stdin is a pipe" not in done.err
    assert yard.ok("cat", "last").out == done.out
    log = (yard.work / "log.tsv").read_text()
    assert sorted(line.split("\t")[0] for line in log.splitlines()) == ["1", "2", "3", "Seq"]
    assert yard.ok("joblog", "last").out == log


def test_the_second_run_of_a_job_log_keeps_the_numbers_of_the_first(yard: TemporaryYard) -> None:
    (yard.work / "list").write_text("true a\ntest -e new\ntrue c\n")
    for words in (["test {} != b", ":::", "a", "b", "c"], ["list"]):
        line = ["run", "--joblog", f"{words[-1]}.log", "--resume", f"{words[-1]}.log", *words]
        assert [yard.run(*line).code, yard.run(*line).code] == [1, 1]
        rows = [each.split("\t") for each in (yard.work / f"{words[-1]}.log").read_text().splitlines()[1:]]
        failed = "test -e new" if words == ["list"] else "test b != b"
        assert [row[0] for row in rows if row[-1] == failed] == ["2", "2"]
        assert len(rows) == 4
