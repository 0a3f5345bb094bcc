"""Does the agent know when nobody writes a checkpoint, and at what price?"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest

from jobyard.agent.attempts import quiet
from jobyard.agent.attempts.quiet import LOOK_SECONDS, Quiet
from jobyard.agent_protocol import clock


@pytest.fixture
def old_files(tmp_path: Path) -> Path:
    for name in "abcde":
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (1000, 1000))
    return tmp_path


def test_files_that_nobody_has_touched_for_long_are_quiet(old_files: Path) -> None:
    assert Quiet([str(old_files)]).is_quiet()


def test_a_directory_with_too_many_entries_to_look_at_is_not_quiet(
    old_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "_ENTRIES_MOST", 4)
    watched = Quiet([str(old_files)])
    later = clock.seconds() + 1000
    assert not watched.is_quiet()
    monkeypatch.setattr(clock, "seconds", lambda: later)
    assert not watched.is_quiet()


def test_the_longer_a_look_takes_the_longer_is_the_pause(old_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Quiet([str(old_files)]).pause >= LOOK_SECONDS
    ticks = count(0, 0.1)
    monkeypatch.setattr(clock, "seconds", lambda: next(ticks))
    assert Quiet([str(old_files)]).pause == pytest.approx(20 * 0.6)


def test_a_look_that_takes_too_long_is_given_up_and_nothing_is_quiet(
    old_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = count(0, 0.6)
    monkeypatch.setattr(clock, "seconds", lambda: next(ticks))
    watched = Quiet([str(old_files)])
    assert not any(watched.is_quiet() for _ in range(10))
