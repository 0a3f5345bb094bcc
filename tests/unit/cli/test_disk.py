"""Is a filling disk told early, and not again and again?"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobyard.cli import disk
from jobyard.cli.commands.doctor import WARN, kept_checks, local_checks
from jobyard.wire.kept import KeptView, LeavingJob

GIB = 1 << 30


def has(monkeypatch: pytest.MonkeyPatch, total: int, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: (total * GIB, (total - free) * GIB, free * GIB))


@pytest.mark.parametrize(
    ("total", "free", "is_little"),
    [(1000, 11, False), (1000, 9, True), (50, 6, False), (50, 4, True), (4, 2, False), (4, 0, True)],
)
def test_little_is_a_tenth_but_at_most_ten_gib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, free: int, is_little: bool
) -> None:
    has(monkeypatch, total, free)
    assert disk.free_mib(tmp_path / "not" / "yet") == (free * 1024, is_little)
    (check,) = [check for check in local_checks(tmp_path) if check.name == "disk"]
    assert (check.status == WARN) is is_little
    assert ("yard gc" in check.way_out) is is_little


def test_a_terminal_is_told_once_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    has(monkeypatch, 1000, 9)
    session: Any = SimpleNamespace(is_remote=False, yard=str(tmp_path))
    disk.tell_if_filling(session)
    assert capsys.readouterr().err == "", "nobody looks"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    disk.tell_if_filling(session)
    disk.tell_if_filling(session)
    told = capsys.readouterr().err
    assert told.count("only 9 GiB are free where the yard") == 1


def test_doctor_says_what_is_kept_and_what_goes_unfetched() -> None:
    leaving = tuple(LeavingJob(f"j{number}", number, "train", 0.0) for number in range(1, 8))
    kept, *warnings = kept_checks(KeptView(12, 3 << 20, 10 << 30, leaving))
    assert kept.message == "12 jobs that have ended take 3 MiB on the server's disk; from 10 GiB on the oldest go"
    assert len(warnings) == 6
    assert "job 1 (train) goes in" in warnings[0].message
    assert warnings[-1].message.startswith("2 more jobs go soon")
    assert kept_checks(None) == []
