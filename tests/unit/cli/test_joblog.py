"""A line for each task that ended, in parallel's columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.conftest import Yard
from tests.unit.cli.test_follow import DONE, PENDING, offer
from tests.unit.client.stand_in import Said, StandIn
from tests.unit.client.views import a_job_view

from jobyard.cli.output.joblog import HEADER, joblog_line
from jobyard.model.job import State
from jobyard.wire.views import Counts, EndingView

ENDED = EndingView(0, "0", 1, State.SUCCEEDED, "here", 1000.25, 1002.5, 0, None, 17, "echo hi")
LINE = "1\there\t1000.250\t     2.250\t0\t17\t0\t0\techo hi"


def an_ending(**changed: object) -> EndingView:
    return EndingView(**{**{name: getattr(ENDED, name) for name in ENDED.__dataclass_fields__}, **changed})


def offer_endings(stand_in: StandIn, *endings: EndingView) -> None:
    events = [("ended", str(row), ending) for row, ending in enumerate(endings, start=5)]
    stand_in.on("GET /jobs/j1/endings", Said(events=[*events, ("end", "", {})]))


def test_a_line_has_parallels_columns() -> None:
    assert HEADER.split("\t")[-3:] == ["Exitval", "Signal", "Command"]
    assert joblog_line(ENDED) == LINE


def test_a_task_keeps_its_seq_when_others_were_left_out_and_an_older_server_tells_none() -> None:
    assert [joblog_line(an_ending(number=0, seq=seq)).split("\t")[0] for seq in (2, 0)] == ["2", "1"]


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        (an_ending(state=State.FAILED, exit_code=3), "3\t0"),
        (an_ending(state=State.FAILED, exit_code=None, signal=9), "0\t9"),
        (an_ending(state=State.FAILED, exit_code=0), "-1\t0"),
        (an_ending(state=State.FAILED, exit_code=None), "-1\t0"),
    ],
)
def test_a_failure_shows_in_the_exit_value_or_the_signal(ending: EndingView, told: str) -> None:
    assert joblog_line(ending).split("\t", 6)[6].rpartition("\t")[0] == told


def test_a_command_of_several_lines_stays_on_one_and_steers_no_terminal() -> None:
    assert joblog_line(an_ending(command="echo a\n\x1b[2Jecho\tb")).split("\t")[8:] == ["echo a echo b"]


def test_run_writes_the_job_log_while_it_follows(yard: Yard, stand_in: StandIn) -> None:
    offer(stand_in, DONE)
    offer_endings(stand_in, ENDED)
    assert yard("run", "--joblog", "log.tsv", "--", "echo", "hi").code == 0
    assert Path("log.tsv").read_text() == f"{HEADER}\n{LINE}\n"
    again = yard("run", "--joblog", "log.tsv", "--", "echo", "hi")
    assert again.code == 0, "an older job log is written anew"
    assert len(Path("log.tsv").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "told"),
    [("train.py", "is there and is no job log"), ("no/where", "No such file"), (".", "Is a directory")],
)
def test_a_job_log_that_cannot_be_written_is_refused_before_the_submit(
    yard: Yard, stand_in: StandIn, name: str, told: str
) -> None:
    offer(stand_in, DONE)
    Path("train.py").write_text("print('precious')\n")
    result = yard("run", "--joblog", name, "--", "true")
    assert (result.code, told in result.err) == (2, True), result.err
    assert Path("train.py").read_text() == "print('precious')\n"
    assert stand_in.calls("POST /jobs") == []


def test_a_job_log_needs_somebody_who_follows(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("POST /jobs", Said(201, PENDING))
    result = yard("run", "-d", "--joblog", "log.tsv", "--", "true")
    assert result.code == 2
    assert "leave --detach out, or use `yard joblog JOB` later" in result.err
    assert not Path("log.tsv").exists()


def test_joblog_prints_what_the_journal_has_and_says_what_it_has_not(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(State.SUCCEEDED, counts=Counts(total=3, succeeded=3))))
    offer_endings(stand_in, ENDED)
    result = yard("joblog", "j1")
    assert (result.code, result.out) == (0, f"{HEADER}\n{LINE}\n")
    assert "2 of the tasks ended so long ago that the journal has no line of them" in result.err


def test_endings_come_once_each_over_the_death_of_the_server(yard: Yard, stand_in: StandIn) -> None:
    second, third = an_ending(number=1), an_ending(number=2)
    stand_in.on("GET /jobs/j1", Said(data=a_job_view(State.SUCCEEDED, counts=Counts(total=3, succeeded=3))))
    stand_in.on(
        "GET /jobs/j1/endings",
        Said(events=[("ended", "7", ENDED), ("ended", "7", second)], dies=True),
        Said(events=[("ended", "7", second), ("ended", "8", third), ("end", "", {})]),
    )
    result = yard("joblog", "j1")
    assert [line.split("\t")[0] for line in result.out.splitlines()[1:]] == ["1", "2", "3"]
    assert stand_in.calls("GET /jobs/j1/endings")[1].headers["Last-Event-ID"] == "7"
