"""A background server leaves when idle, and never while somebody or something needs it."""

from __future__ import annotations

import asyncio

import pytest

from jobyard.server import lifetime
from jobyard.server.lifetime import Lifetime


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "LOOK_SECONDS", 0.01)


async def is_over(life: Lifetime, seconds: float) -> bool:
    try:
        await asyncio.wait_for(life.over(), seconds)
    except TimeoutError:
        return False
    return True


async def test_an_idle_server_leaves() -> None:
    assert await is_over(Lifetime(0.05, lambda: False), 5)


async def test_pending_work_keeps_it() -> None:
    assert not await is_over(Lifetime(0.02, lambda: True), 0.2)


async def test_an_open_request_keeps_it_and_the_time_begins_anew_after_it() -> None:
    life = Lifetime(0.15, lambda: False)
    with life.request():
        assert not await is_over(life, 0.3)
    begin = asyncio.get_running_loop().time()
    assert await is_over(life, 5)
    assert asyncio.get_running_loop().time() - begin >= 0.14


async def test_asked_to_stop_it_leaves_at_once_even_with_work() -> None:
    life = Lifetime(None, lambda: True)
    life.stop()
    assert await is_over(life, 1)


async def test_without_an_idle_time_it_stays() -> None:
    assert not await is_over(Lifetime(None, lambda: False), 0.1)
