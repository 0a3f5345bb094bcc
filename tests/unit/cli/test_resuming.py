"""What succeeded before, by a job log, is not run again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.cli.test_follow import DONE, offer
from tests.unit.cli.test_joblog import offer_endings
from tests.unit.client.stand_in import Said, StandIn
from tests.unit.client.views import a_job_view

from jobyard.cli.output.joblog import HEADER, JoblogFile, joblog_line
from jobyard.model.job import State
from jobyard.wire.views import EndingView, PlanView


def a_line(command: str, exit_value: int = 0, signal: int = 0) -> str:
    return f"1\tn\t1.000\t  0.100\t0\t0\t{exit_value}\t{signal}\t{command}\n"


@pytest.fixture
def log(home: Path, stand_in: StandIn) -> Path:
    stand_in.on("POST /jobs", Said(data=PlanView(a_job_view(State.PENDING))))
    return home / "here" / "log"


def left(yard: Yard, *words: str) -> list[str]:
    """The commands that would be submitted."""
    lines = yard("run", "--dry-run", "-v", "--resume", "log", *words).out.splitlines()
    return [line.split("  ", 1)[1] for line in lines if line.startswith("task ")]


def test_what_succeeded_is_told_by_its_command_and_not_by_its_place(yard: Yard, log: Path) -> None:
    told = a_line("echo b") + a_line("echo c", 3) + a_line("echo d", 0, 9) + a_line("echo $'e\\tf'") + "cut off"
    log.write_text(f"{HEADER}\n{told}")
    assert left(yard, "echo", "{}", ":::", *"abcd", "e f", "e\tf") == ["echo a", "echo c", "echo d", "echo 'e f'"]


def test_of_the_same_command_as_many_are_left_out_as_succeeded(yard: Yard, log: Path, home: Path) -> None:
    log.write_text(f"{HEADER}\n{2 * a_line('./step')}")
    (home / "here" / "list").write_text("./step\n./other\n./step\n./step\n")
    assert left(yard, "list") == ["./other", "./step"]


def test_where_all_succeeded_there_is_nothing_to_do_and_that_is_no_error(
    yard: Yard, log: Path, stand_in: StandIn
) -> None:
    log.write_text(f"{HEADER}\n{a_line('echo a')}")
    for verb in ("run", "submit"):
        result = yard(verb, "--resume", "log", "echo", ":::", "a")
        assert (result.code, result.out) == (0, "")
        assert result.err == "yard: --resume: all 1 tasks succeeded before, by log; nothing was submitted\n"
    assert not stand_in.calls("POST /jobs")


@pytest.mark.parametrize(
    ("text", "words", "sentence"),
    [
        (None, ("echo", ":::", "a"), "'log' does not exist"),
        ("hello\n", ("echo", ":::", "a"), "'log' is no job log"),
        (f"{HEADER}\n", ("-a", "0-3", "--", "x"), "all have the same command"),
    ],
)
def test_a_log_that_tells_nothing_is_refused(
    text: str | None, words: tuple[str, ...], sentence: str, yard: Yard, log: Path
) -> None:
    if text is not None:
        log.write_text(text)
    result = yard("run", "--resume", "log", *words)
    assert result.code == 2
    assert sentence in result.err


def test_the_same_file_may_be_missing_at_first_and_goes_on_later(yard: Yard, log: Path) -> None:
    assert left(yard, "--joblog", "log", "echo", ":::", "a") == ["echo a"]
    ending = EndingView(0, "0", 1, State.SUCCEEDED, "n", 1.0, 2.0, 0, None, 0, "echo a")
    for name in ("a", "a", "b"):
        with JoblogFile(str(log), goes_on=name == "b") as file:
            file.write(ending)
    assert log.read_text().splitlines() == [HEADER, joblog_line(ending), joblog_line(ending)]
    log.write_text(log.read_text() + "cut")
    with JoblogFile(str(log), goes_on=True) as file:
        file.write(ending)
    assert log.read_text().splitlines()[-2:] == ["cut", joblog_line(ending)]


def test_a_share_of_failures_is_of_the_tasks_that_are_left(yard: Yard, log: Path, stand_in: StandIn) -> None:
    log.write_text(f"{HEADER}\n{''.join(a_line(f'echo {number}') for number in range(90))}")
    yard("submit", "--resume", "log", "--halt", "soon,fail=50%", "echo", ":::", *map(str, range(100)))
    (call,) = stand_in.calls("POST /jobs")
    assert call.body["spec"]["policy"]["max_fails"] == 4


def test_a_list_that_goes_on_keeps_the_number_of_each_line(
    yard: Yard, log: Path, home: Path, stand_in: StandIn
) -> None:
    log.write_text(f"{HEADER}\n{a_line('echo a')}{a_line('echo c')}")
    (home / "here" / "list").write_text("echo a\necho b\necho c\necho d\n")
    offer(stand_in, DONE)
    endings = [
        EndingView(n, str(n), 1, State.SUCCEEDED, "n", 1.0, 2.0, 0, None, 0, f"echo {word}")
        for n, word in enumerate("bd")
    ]
    offer_endings(stand_in, *endings)
    stand_in.on("GET /jobs/j1/logs/raw", Said(data=b""))
    assert yard("run", "--joblog", "log", "--resume", "log", "--results", "kept", "list").code == 0
    told = [line.split("\t") for line in log.read_text().splitlines()[3:]]
    assert [(words[0], words[-1]) for words in told] == [("2", "echo b"), ("4", "echo d")]
    assert (home / "here" / "kept" / "1" / "seq").read_text() == "4\n"
