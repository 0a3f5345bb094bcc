"""Whose results are at home and do not count?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobyard.agent_protocol import packs
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


def test_what_was_packed_comes_back_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror(tmp_path)
    path = written(mirror, FIRST, "said")
    mirror.pack([FIRST.job], lambda job: True)

    def stopped(*_: object) -> None:
        raise OSError("the machine stopped")

    with monkeypatch.context() as here:
        here.setattr(os, "rename", stopped)
        with pytest.raises(OSError, match="the machine stopped"):
            mirror.unpack(FIRST)
        assert not path.exists()
    mirror.unpack(FIRST)
    assert path.read_text() == "said"


def test_damaged_output_of_an_earlier_attempt_keeps_nothing_else_back(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path)
    path = written(mirror, FIRST, "said")
    mirror.pack([FIRST.job], lambda job: True)
    pack = tmp_path / "jobs" / FIRST.job / "pack"
    pack.write_bytes(pack.read_bytes()[:-1] + b"\0")
    mirror.unpack(FIRST)
    assert not path.exists()


def written(mirror: Mirror, attempt: AttemptId, text: str) -> Path:
    path = mirror.path(attempt, "out")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_small_output_of_jobs_that_have_ended_is_packed(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path)
    small = [written(mirror, AttemptId("j", task, 1), f"said {task}") for task in (0, 1, 1000)]
    large = written(mirror, AttemptId("j", 2, 1), "x" * 100_000)
    runs = written(mirror, AttemptId("k", 0, 1), "runs")
    mirror.pack(["j", "k", "never-heard-of"], lambda job: job != "k")
    assert [path.exists() for path in small] == [False] * 3
    assert large.exists()
    assert runs.exists()
    assert tasks_in(tmp_path, "j") == {0, 1, 2, 1000}
    assert packs.PACKS.content(str(small[2])) == b"said 1000"
    mirror.pack(["j"], lambda job: True)
    mirror.unpack(AttemptId("j", 1, 1))
    assert small[1].read_text() == "said 1"
    mirror.forget(["j"])
    assert packs.PACKS.content(str(small[2])) is None
