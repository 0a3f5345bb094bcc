"""When is a cluster away, and who hears of it?"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.waiting import PATIENCE_SECONDS

from jobyard.errors import UserError
from jobyard.executors.kubernetes import link as link_module
from jobyard.executors.kubernetes.link import ClusterLink
from jobyard.kubernetes.api import Api
from jobyard.model.events import NodeWentAway
from jobyard.model.node import ClusterConfig


class PlayedApi:
    is_closed = False

    async def close(self) -> None:
        self.is_closed = True


class Cluster:
    def __init__(self) -> None:
        self.told: asyncio.Queue[Any] = asyncio.Queue()
        self.returns = 0
        self.link = ClusterLink(ClusterConfig("k"), self.told.put_nowait, self.returned)
        self.link.api = cast(Api, PlayedApi())

    def returned(self) -> None:
        self.returns += 1

    async def away(self) -> NodeWentAway:
        async with asyncio.timeout(PATIENCE_SECONDS):
            (event,) = await self.told.get()
        assert isinstance(event, NodeWentAway)
        return event


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "AWAY_SECONDS", 0.0)


@pytest.mark.usefixtures("_soon")
async def test_a_cluster_that_stays_silent_goes_away_once_with_the_last_problem() -> None:
    cluster = Cluster()
    cluster.link.back()
    cluster.link.fail("connection refused")
    cluster.link.fail("no route to host")
    event = await cluster.away()
    assert (event.node, event.message) == ("k", "no route to host")
    assert (cluster.link.is_away, cluster.link.is_up) == (True, False)
    cluster.link.fail("no route to host")
    await asyncio.sleep(0)
    assert cluster.told.empty()


@pytest.mark.usefixtures("_soon")
async def test_who_was_away_returns_once() -> None:
    cluster = Cluster()
    cluster.link.fail("connection refused")
    await cluster.away()
    cluster.link.back()
    cluster.link.back()
    assert (cluster.returns, cluster.link.is_away, cluster.link.is_up, cluster.link.problem) == (1, False, True, "")


async def test_who_is_back_in_time_was_never_away() -> None:
    cluster = Cluster()
    cluster.link.fail("connection refused")
    assert cluster.link.problem == "connection refused"
    cluster.link.back()
    assert (cluster.returns, cluster.told.empty(), cluster.link.problem) == (0, True, "")


async def test_a_cluster_with_a_problem_is_refused_in_its_words_and_at_once() -> None:
    cluster = Cluster()
    cluster.link.fail("connection refused")
    with pytest.raises(UserError, match="cluster k cannot be used: connection refused"):
        await cluster.link.ready()
    cluster.link.back()
    assert await cluster.link.ready() is cluster.link.api


async def test_a_cluster_that_is_about_to_be_connected_is_waited_for() -> None:
    cluster = Cluster()
    asking = asyncio.create_task(cluster.link.ready())
    await asyncio.sleep(0)
    assert not asking.done()
    cluster.link.back()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await asking is cluster.link.api


async def test_a_link_that_is_let_go_is_closed() -> None:
    cluster = Cluster()
    api = cast(PlayedApi, cluster.link.api)
    cluster.link.back()
    await cluster.link.disconnect()
    assert (api.is_closed, cluster.link.api, cluster.link.is_up) == (True, None, False)
    await cluster.link.disconnect()
