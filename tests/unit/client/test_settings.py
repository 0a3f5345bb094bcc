from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobyard import settings
from jobyard.errors import UserError
from jobyard.settings import ClientKnobs, ServerKnobs


def test_a_knob_is_set_by_its_variable() -> None:
    found = settings.knobs(ServerKnobs, {"YARD_IDLE_SECONDS": "7.5", "YARD_DB": "postgresql://x"})
    assert found == ServerKnobs(idle_seconds=7.5, db="postgresql://x")
    assert settings.knobs(ClientKnobs, {"YARD_DEBUG": "1"}).debug is True
    assert settings.knobs(ClientKnobs, {"YARD_DEBUG": "0"}).debug is False


@pytest.mark.parametrize("value", ["soon", "-1", "inf", "nan"])
def test_a_bad_value_is_refused_by_the_name_of_its_variable(value: str) -> None:
    with pytest.raises(UserError, match="YARD_IDLE_SECONDS"):
        settings.knobs(ServerKnobs, {"YARD_IDLE_SECONDS": value})


def test_the_directories_follow_xdg_and_ignore_relative_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("YARD_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert settings.yard_dir() == tmp_path / ".local/share/jobyard"
    assert settings.state_dir() == Path("/state/jobyard")


def test_a_yard_given_by_hand_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("YARD_DIR", "/elsewhere")
    monkeypatch.chdir(tmp_path)
    assert settings.yard_dir("mine") == tmp_path / "mine"
    assert settings.yard_dir() == Path("/elsewhere")


def test_one_yard_has_one_socket_however_it_is_reached(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    (tmp_path / "link").symlink_to(tmp_path / "yard")
    path = settings.socket_path(tmp_path / "yard")
    assert settings.socket_path(tmp_path / "link") == path
    assert settings.socket_path(tmp_path / "other") != path
    assert path.parent == short_dir / "jobyard"
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_runtime_directory_that_is_too_long_for_a_socket_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    assert len(os.fsencode(settings.socket_path(tmp_path))) <= settings.SOCKET_PATH_BYTES


def test_a_directory_that_others_may_enter_is_not_used(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (short_dir / "jobyard").mkdir()
    (short_dir / "jobyard").chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    assert settings.socket_path(short_dir / "yard").parent != short_dir / "jobyard"


def test_the_build_is_named_and_stays_the_same() -> None:
    assert settings.build_id() == settings.build_id()
    assert settings.build_id().startswith("0.")
