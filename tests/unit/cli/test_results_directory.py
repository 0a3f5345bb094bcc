"""The output of each task, in a directory of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.unit.cli.conftest import Yard
from tests.unit.cli.test_follow import DONE, PENDING, offer
from tests.unit.cli.test_joblog import ENDED, offer_endings
from tests.unit.client.stand_in import Said, StandIn


def test_each_task_that_ends_gets_its_files(yard: Yard, stand_in: StandIn) -> None:
    offer(stand_in, DONE)
    offer_endings(stand_in, ENDED, replace(ENDED, number=6, task="worker/3", attempt=2, seq=9))
    stand_in.on(
        "GET /jobs/j1/logs/raw",
        lambda asked: Said(data="{task} {attempt} {stream}".format(**asked.query).encode()),
    )
    assert yard("run", "--results", "to/there", "--", "true").code == 0
    files = {str(path): path.read_text() for path in Path("to").rglob("*") if path.is_file()}
    assert files == {
        "to/there/0/stdout": "0 1 out",
        "to/there/0/stderr": "0 1 err",
        "to/there/0/seq": "1\n",
        "to/there/worker_3/stdout": "worker/3 2 out",
        "to/there/worker_3/stderr": "worker/3 2 err",
        "to/there/worker_3/seq": "9\n",
    }


def test_a_directory_that_cannot_be_made_is_refused_before_the_submit(yard: Yard, stand_in: StandIn) -> None:
    Path("file").write_text("")
    offer(stand_in, DONE)
    result = yard("run", "--results", "file", "--", "true")
    assert (result.code, "--results: 'file' cannot be made" in result.err) == (2, True)
    assert stand_in.calls("POST /jobs") == []


def test_results_need_somebody_who_follows(yard: Yard, stand_in: StandIn) -> None:
    stand_in.on("POST /jobs", Said(201, PENDING))
    result = yard("run", "-d", "--results", "there", "--", "true")
    assert result.code == 2
    assert "leave --detach out, or use `yard fetch JOB` later" in result.err
    assert not Path("there").exists()
