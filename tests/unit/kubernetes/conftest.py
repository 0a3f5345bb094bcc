from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.kubernetes.played_server import PlayedServer, played_server

from jobyard.backoff import Backoff


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedServer]:
    monkeypatch.setattr("jobyard.kubernetes.api.BACKOFF", Backoff(0.0, 0.0))
    with played_server(tmp_path) as served:
        yield served
