from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.client.standin import StandIn, standing_in

from jobyard.client.address import Address
from jobyard.client.api import YardClient
from jobyard.settings import ClientKnobs

KNOBS = ClientKnobs(request_seconds=60, silence_seconds=5, start_seconds=60, reconnect_seconds=5)


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose name is short enough for a socket; pytest's own is not always."""
    with tempfile.TemporaryDirectory(prefix="yt-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def standin(short_dir: Path) -> Iterator[StandIn]:
    with standing_in(short_dir / "s.sock") as standin:
        yield standin


@pytest.fixture
def client(standin: StandIn) -> YardClient:
    return YardClient(Address(socket=str(standin.socket_path)), KNOBS)
