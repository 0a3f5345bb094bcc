"""Each test gets a yard of its own, and leaves no process behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.faults.live_yard import LiveYard


@pytest.fixture
def live(request: pytest.FixtureRequest) -> Iterator[LiveYard]:
    yard = LiveYard()
    try:
        yield yard
        strays = yard.stop()
        assert not strays, strays
    finally:
        print(yard.story())  # pytest shows it where the test failed
        yard.remove()
