from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.client.stand_in import StandIn, standing_in

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
def stand_in(short_dir: Path) -> Iterator[StandIn]:
    with standing_in(short_dir / "s.sock") as stand_in:
        yield stand_in


@pytest.fixture
def client(stand_in: StandIn) -> YardClient:
    return YardClient(Address(socket=str(stand_in.socket_path)), KNOBS)
