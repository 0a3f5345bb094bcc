"""Every promise is asked of every executor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.places import PLACES, ConformanceYard, Place


@pytest.fixture(params=sorted(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    made = PLACES[request.param](tmp_path / "place", monkeypatch)
    try:
        yield made
    finally:
        made.clear()


@pytest.fixture
def yard(tmp_path: Path) -> ConformanceYard:
    workdir = tmp_path / "work"
    workdir.mkdir()
    return ConformanceYard(workdir)


@pytest.fixture
def witness(place: Place) -> Path:
    """A file that tasks write and the test reads."""
    return place.shared / "witness"
