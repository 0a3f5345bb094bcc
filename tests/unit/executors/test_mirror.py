"""Whose results are at home and do not count?"""

from __future__ import annotations

from pathlib import Path

from jobyard.executors.mirror import Mirror, tasks_in
from jobyard.model.task import AttemptId

FIRST, OTHER = AttemptId("aa", 0, 1), AttemptId("aa", 1, 1)


def test_what_was_placed_and_never_told_is_a_stray_also_for_the_next_server(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mirror")
    mirror.mark(FIRST)
    mirror.mark(OTHER)
    mirror.unmark([OTHER])
    for seen in (mirror, Mirror(tmp_path / "mirror")):
        assert seen.is_stray(FIRST)
        assert not seen.is_stray(OTHER)


def test_what_was_told_counts_before_its_mark_is_gone(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mirror")
    mirror.mark(FIRST)
    mirror.told([FIRST, OTHER])
    assert not mirror.is_stray(FIRST)
    mirror.unmark([FIRST])
    assert not list((tmp_path / "mirror").iterdir())


def test_a_mark_that_was_cut_off_is_none(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mirror")
    mirror.mark(FIRST)
    with (tmp_path / "mirror" / "placed").open("a") as file:
        file.write("+aa.1")
    assert Mirror(tmp_path / "mirror").is_stray(FIRST)


def test_bytes_are_written_once_and_in_order(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path)
    for offset, data in ((0, "YWI="), (0, "YWI="), (1, "YmM=")):  # ab, ab, bc
        mirror.take({"id": str(FIRST), "stream": "out", "offset": offset, "data": data})
    assert mirror.path(FIRST, "out").read_bytes() == b"abc"
    assert mirror.have([FIRST, OTHER]) == {str(FIRST): {"out": 3, "err": 0, "results": 0}}
    assert mirror.lacks(FIRST, {"out": 3}) == ""
    assert "3 of 4" in mirror.lacks(FIRST, {"out": 4})


def test_the_tasks_of_a_job_are_found_by_what_is_here_of_them(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mirror")
    for task in (7, 1_000_003):
        mirror.take({"id": f"aa.{task}.2", "stream": "out", "offset": 0, "data": ""})
    assert tasks_in(mirror.directory, "aa") == {7, 1_000_003}
    assert tasks_in(mirror.directory, "bb") == set()
