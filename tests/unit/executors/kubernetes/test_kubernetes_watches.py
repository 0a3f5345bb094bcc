"""What is followed in a cluster, and when is all of it known?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.waiting import PATIENCE_SECONDS

from jobyard.backoff import Backoff
from jobyard.errors import Unavailable
from jobyard.executors.kubernetes.held_jobs import HeldJobs
from jobyard.executors.kubernetes.kinds import KINDS
from jobyard.executors.kubernetes.link import ClusterLink
from jobyard.executors.kubernetes.room import ClusterRoom
from jobyard.executors.kubernetes.watches import Watches
from jobyard.executors.mirror import Mirror
from jobyard.kubernetes import watching
from jobyard.kubernetes.api import OPENED, Api
from jobyard.kubernetes.refusals import Refused
from jobyard.model.node import ClusterConfig

Object = dict[str, Any]
JOB, JOBSET = KINDS["Job"], KINDS["JobSet"]
POD: Object = {"metadata": {"name": "p", "namespace": "ns", "resourceVersion": "1"}, "spec": {}, "status": {}}


class PlayedApi:
    """Has no operators, and one pod. Watches are open until they are cut."""

    namespace = "ns"

    def __init__(self, *, sees_all: bool = True) -> None:
        self.sees_all = sees_all
        self.watched: dict[str, asyncio.Future[None]] = {}

    async def get(self, path: str, **query: str) -> Object:
        if path.startswith("/apis/") and path.count("/") == 3:
            raise Refused(404, "NotFound", "no such group")
        if path == "/api/v1/pods" and not self.sees_all:
            raise Refused(403, "Forbidden", "only your own")
        return {"items": [POD] if path.endswith("/pods") else [], "metadata": {"resourceVersion": "1"}}

    async def watch(self, path: str, version: str, **query: str) -> AsyncGenerator[tuple[str, Object], None]:
        self.watched[path] = cut = asyncio.get_running_loop().create_future()
        yield OPENED, {}
        await cut

    def cut(self, path: str) -> None:
        self.watched[path].set_exception(Unavailable("the watch was cut"))


class Cluster:
    def __init__(self, directory: Path, api: PlayedApi) -> None:
        self.api = api
        config = ClusterConfig("k", namespace="ns")
        self.link = ClusterLink(config, lambda events: None, lambda: None)
        self.link.api = cast(Api, api)
        room = ClusterRoom("k", False, lambda pod: False)
        jobs = HeldJobs("k", Mirror(directory), lambda events: None, lambda seen: "")
        self.watches = Watches(config, "y1", self.link, room, jobs)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Watches]:
        """One connection, once all there is has been read."""
        connection = asyncio.create_task(self._connect(started := asyncio.Event()))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await started.wait()
                yield self.watches
        finally:
            connection.cancel()
            await asyncio.gather(connection, return_exceptions=True)

    async def _connect(self, started: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            await self.watches.start(cast(Api, self.api), group)
            started.set()
            await asyncio.Event().wait()


@pytest.mark.parametrize(("sees_all", "path"), [(True, "/api/v1/pods"), (False, "/api/v1/namespaces/ns/pods")])
async def test_pods_of_all_namespaces_are_counted_where_we_may(tmp_path: Path, sees_all: bool, path: str) -> None:
    cluster = Cluster(tmp_path, PlayedApi(sees_all=sees_all))
    async with cluster.watched() as watches:
        assert path in cluster.api.watched
        assert [pod["metadata"]["name"] for pod in watches.pods_in("ns")] == ["p"]
        assert list(watches.pods_in("elsewhere")) == []


async def test_what_no_operator_brings_is_not_watched_before_it_is_asked_for(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, PlayedApi())
    async with cluster.watched() as watches:
        assert (watches.has(JOB), watches.sees_all_of(JOB)) == (True, True)
        assert (watches.has(JOBSET), watches.sees_all_of(JOBSET)) == (False, False)
        await watches.start_one(JOBSET, "ns")
        assert (watches.has(JOBSET), watches.sees_all_of(JOBSET)) == (True, True)


async def test_a_watch_that_is_cut_is_a_problem_until_all_are_complete_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "BACKOFF", Backoff(0.0, 0.0))
    cluster = Cluster(tmp_path, PlayedApi())
    async with cluster.watched() as watches:
        path = JOB.collection("ns")
        cluster.link.back()
        cluster.api.cut(path)
        while not cluster.link.problem:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert not watches.sees_all_of(JOB)
        while cluster.link.problem:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert watches.sees_all_of(JOB)


async def test_over_another_connection_nothing_is_complete_before_it_was_read_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, PlayedApi())
    async with cluster.watched():
        pass
    async with cluster.watched() as watches:
        assert watches.sees_all_of(JOB)
        assert not watches.has(JOBSET)
