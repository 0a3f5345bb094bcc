from __future__ import annotations

import fcntl
import os
import sys
import threading
from pathlib import Path

import pytest
from tests.unit.client.stand_in import Said, StandIn, problem, standing_in
from tests.unit.client.views import a_job_view, a_server_view, a_spec

from jobyard import settings
from jobyard.client.local import LocalYard, connect, remote_address
from jobyard.errors import Unreachable
from jobyard.settings import ClientKnobs

KNOBS = ClientKnobs(request_seconds=60, start_seconds=60, reconnect_seconds=60)


@pytest.fixture
def yard(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    monkeypatch.setenv("YARD_DIR", str(short_dir / "yard"))
    monkeypatch.delenv("YARD_URL", raising=False)
    return short_dir / "yard"


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Starting a server is only counted."""
    found: list[Path] = []
    monkeypatch.setattr(LocalYard, "_spawn", lambda self: found.append(self.directory))
    return found


def a_program(directory: Path, text: str) -> str:
    path = directory / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_server_is_started_where_none_answers(yard: Path, starts: list[Path]) -> None:
    LocalYard(yard, KNOBS).ensure_server(pytest.fail)
    assert starts == [yard]


def test_a_server_of_our_build_is_used(yard: Path, starts: list[Path]) -> None:
    with standing_in(settings.socket_path(yard)) as stand_in:
        stand_in.on("GET /server", Said(data=a_server_view()))
        connect(None, KNOBS, pytest.fail)
    assert starts == []


def stops(stand_in: StandIn) -> Said:
    """The server goes away when it is asked to."""
    stand_in.socket_path.unlink()
    return Said()


@pytest.mark.parametrize("view", [a_server_view(build="old"), {"build": "old", "shape": "strange"}])
def test_a_stale_idle_server_is_replaced(yard: Path, starts: list[Path], view: object) -> None:
    with standing_in(settings.socket_path(yard)) as stand_in:
        stand_in.on("GET /server", Said(data=view))
        stand_in.on("POST /server/stop", lambda asked: stops(stand_in))
        LocalYard(yard, KNOBS).ensure_server(pytest.fail)
    assert starts == [yard]


def test_a_stale_busy_server_is_used_with_a_warning(yard: Path, starts: list[Path]) -> None:
    warnings: list[str] = []
    with standing_in(settings.socket_path(yard)) as stand_in:
        stand_in.on("GET /server", Said(data=a_server_view(build="old", jobs_active=1)))
        stand_in.on("POST /server/stop", problem(409, "bad_request", "work is pending"))
        LocalYard(yard, KNOBS).ensure_server(warnings.append)
    assert starts == []
    assert len(warnings) == 1


def test_stopping_where_none_runs_is_no_error(yard: Path) -> None:
    assert LocalYard(yard, KNOBS).stop() is False


def test_a_server_that_cannot_start_is_quoted(yard: Path, short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", a_program(short_dir, "echo 'yard: the disk is full' >&2; exit 1"))
    with pytest.raises(Unreachable, match="cannot start: the disk is full"):
        LocalYard(yard, KNOBS).start()


def test_a_server_that_never_answers_is_given_up(yard: Path, short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", a_program(short_dir, "exec sleep 60"))
    with pytest.raises(Unreachable, match="YARD_START_SECONDS"):
        LocalYard(yard, ClientKnobs(start_seconds=0.2)).start()


def test_a_directory_given_by_hand_wins_over_the_url(yard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARD_URL", "http://yard.example:7077")
    assert remote_address(None) is not None
    assert remote_address(str(yard)) is None


def test_a_url_may_name_a_socket(yard: Path, short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with standing_in(short_dir / "other.sock") as stand_in:
        stand_in.on("GET /server", Said(data=a_server_view(build="old")))
        stand_in.on("POST /jobs", Said(201, a_job_view()))
        monkeypatch.setenv("YARD_URL", f"unix:{stand_in.socket_path}")
        connect(None, KNOBS, pytest.fail).submit(a_spec())
    assert [asked.method for asked in stand_in.asked] == ["GET", "POST"]


def test_a_server_far_away_is_never_started(starts: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARD_URL", "http://127.0.0.1:1")
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:1"):
        connect(None, KNOBS, pytest.fail)
    assert starts == []


def test_a_server_that_another_one_is_starting_is_waited_for(yard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yard.mkdir()
    socket_path = settings.socket_path(yard)
    refused = threading.Event()

    def refuse(self: LocalYard) -> None:
        refused.set()
        raise Unreachable("another server has the yard")

    def come() -> None:
        refused.wait(60)
        with standing_in(socket_path) as stand_in:
            stand_in.on("GET /healthz", Said(data="ok"))
            done.wait(60)

    monkeypatch.setattr(LocalYard, "_spawn", refuse)
    done = threading.Event()
    with open(settings.server_lock_path(yard), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        other = threading.Thread(target=come)
        other.start()
        LocalYard(yard, KNOBS).start()
        done.set()
        other.join()
    assert refused.is_set()


def test_a_server_that_cannot_start_is_tried_twice_and_no_more(yard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def refuse(self: LocalYard) -> None:
        tries.append(1)
        raise Unreachable("the disk is full")

    monkeypatch.setattr(LocalYard, "_spawn", refuse)
    with pytest.raises(Unreachable, match="the disk is full"):
        LocalYard(yard, KNOBS).start()
    assert len(tries) == 2


def test_the_lock_does_not_outlive_its_holder(yard: Path, starts: list[Path]) -> None:
    local = LocalYard(yard, KNOBS)
    local.start()
    local.start()
    assert len(starts) == 2
    assert os.stat(settings.start_lock_path(yard)).st_uid == os.getuid()
