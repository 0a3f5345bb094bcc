"""How large are the files of a job, and has anybody fetched its results?"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobyard.server.stored_files import EndedFiles, Measured, StoredFiles


def plant(directory: Path, path: str, size: int = 10_000) -> None:
    file = directory / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)


def measured(directory: Path, *, collects: bool = True) -> Measured:
    return StoredFiles(directory).measure([EndedFiles("j", 1.0, collects)])["j"]


def test_what_a_job_left_here_and_what_came_from_machines_is_counted_once_after_its_end(tmp_path: Path) -> None:
    plant(tmp_path, "agent/jobs/j/0/0.1.out")
    plant(tmp_path, "agent/jobs/j/checkpoint/0/weights")
    plant(tmp_path, "mirror/jobs/j/0/1.1.out")
    plant(tmp_path, "agent/jobs/other/0/0.1.out")
    first = measured(tmp_path)
    assert 30_000 <= first.bytes < 60_000
    plant(tmp_path, "agent/jobs/j/0/1.1.out")
    assert measured(tmp_path) == first, "it is remembered over servers"
    again = StoredFiles(tmp_path).measure([EndedFiles("j", 2.0, collects=True)])["j"]
    assert again.bytes > first.bytes, "it was tried again, and has another end"
    (tmp_path / "stored.json").write_text('{"form": 1, "jobs": 7}')
    assert measured(tmp_path).bytes == again.bytes, "a cache that is broken is no cache"


@pytest.mark.parametrize(
    ("path", "collects", "is_unfetched"),
    [
        ("agent/jobs/j/0/0.1.output/model.pt", True, True),
        ("mirror/jobs/j/0/0.1.results", False, True),
        ("mirror/jobs/j/0/0.1.results", True, False),
        ("agent/jobs/j/0/0.1.out", True, False),
    ],
)
def test_results_that_are_only_in_the_yard_are_unfetched_until_they_were_sent(
    tmp_path: Path, path: str, collects: bool, is_unfetched: bool
) -> None:
    plant(tmp_path, path)
    assert measured(tmp_path, collects=collects).has_results is is_unfetched
    StoredFiles(tmp_path).was_fetched("j")
    assert not measured(tmp_path, collects=collects).has_results


def test_what_was_fetched_before_the_job_ended_again_has_to_be_fetched_again(tmp_path: Path) -> None:
    plant(tmp_path, "mirror/jobs/j/0/0.1.results")
    StoredFiles(tmp_path).was_fetched("j")
    later = time.time() + 60
    assert StoredFiles(tmp_path).measure([EndedFiles("j", later, collects=False)])["j"].has_results


def test_a_server_that_ends_does_not_wait_until_all_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.server.stored_files._AT_ONCE", 1)
    plant(tmp_path, "agent/jobs/j/0/0.1.out")
    files = StoredFiles(tmp_path)
    files.stop()
    with pytest.raises(InterruptedError):
        files.measure([EndedFiles("j", 1.0, collects=True)])
