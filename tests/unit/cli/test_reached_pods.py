"""What becomes of a Secret that is made by half, of a right that is missing, of a watch that breaks? With an API server
that only plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.kubernetes.played_server import PlayedServer, Reply, played_server

from jobyard.cli.pods import connection
from jobyard.cli.pods.cluster import ReachedCluster, reached_cluster
from jobyard.cli.pods.connection import ReachedPod
from jobyard.cli.reaching import NamespaceAccess, Target
from jobyard.errors import Unavailable, UserError
from jobyard.kubernetes.api import OPENED, Api
from jobyard.kubernetes.refusals import Refused
from jobyard.model.job import State
from jobyard.wire.views import UnitView

SECRET = {"kind": "Secret", "metadata": {"name": "yard-x"}}


class PlayedCluster(ReachedCluster):
    """Notes what is asked, and fails where it is told to."""

    namespace = "lab"

    def __init__(self, failures: dict[tuple[str, str], BaseException]) -> None:
        self._failures = failures
        self.asked: list[tuple[str, str]] = []

    def _ask(self, method: str, plural: str, *_: object, **__: object) -> dict[str, Any]:
        self.asked.append((method, plural))
        if failure := self._failures.get((method, plural)):
            raise failure
        return {"metadata": {"uid": "u"}}


@pytest.mark.parametrize("failure", [UserError("no"), Unavailable("silence"), KeyboardInterrupt(), SystemExit(143)])
@pytest.mark.parametrize("plural", ["configmaps", "secrets"])
def test_a_secret_that_is_made_by_half_is_removed(failure: BaseException, plural: str) -> None:
    cluster = PlayedCluster({("POST", plural): failure})
    with pytest.raises(type(failure)):
        cluster.create_secret(SECRET)
    assert cluster.asked[-2:] == [("DELETE", "secrets"), ("DELETE", "configmaps")]


def test_what_cannot_be_removed_is_told_and_the_first_error_stays(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = PlayedCluster({("POST", "secrets"): UserError("no"), ("DELETE", "configmaps"): Unavailable("silence")})
    with pytest.raises(UserError, match="no"):
        cluster.create_secret(SECRET)
    assert "ConfigMap yard-x in namespace lab may be left behind: silence" in capsys.readouterr().err


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PlayedServer]:
    with played_server(tmp_path) as served:
        yield served


@pytest.fixture
def cluster(server: PlayedServer) -> Iterator[ReachedCluster]:
    config = server.config()
    with reached_cluster(NamespaceAccess("lab", config.kubeconfig, "", "ml")) as reached:
        yield reached


PODS = "/api/v1/namespaces/ml/pods"
CALLS = (f"GET {PODS}/p/log", f"GET {PODS}/p", f"POST {PODS}", f"DELETE {PODS}/p")


@pytest.mark.parametrize(
    ("ask", "right"),
    [
        (lambda cluster: list(cluster.log("p", "c")), "get pods/log"),
        (lambda cluster: cluster.pod("p"), "get pods"),
        (lambda cluster: cluster.create_pod({}), "create pods"),
        (lambda cluster: cluster.remove_pod("p"), "delete pods"),
    ],
)
@pytest.mark.parametrize("status", [401, 403])
def test_a_right_that_is_missing_is_named_with_the_servers_words(
    ask: Callable[[ReachedCluster], object], right: str, status: int, server: PlayedServer, cluster: ReachedCluster
) -> None:
    phrase = {401: "Unauthorized", 403: "Forbidden"}[status]
    for call in CALLS:
        server.on(call, Reply(status, {"message": "pods is forbidden: User ada"}), Reply(status, b""))
    with pytest.raises(UserError) as raised:
        ask(cluster)
    assert str(raised.value) == f"cluster lab does not let you {right} in namespace ml: pods is forbidden: User ada"
    with pytest.raises(UserError, match=f"in namespace ml: {phrase}$"):
        ask(cluster)


def test_the_log_of_a_container_that_has_not_begun_is_empty(server: PlayedServer, cluster: ReachedCluster) -> None:
    server.on(f"GET {PODS}/p/log", Reply(400, {"message": "it is waiting"}))
    assert list(cluster.log("p", "c")) == []


def test_the_log_of_a_container_comes_as_lines_of_text(server: PlayedServer, cluster: ReachedCluster) -> None:
    server.on(f"GET {PODS}/p/log", Reply(200, b"one\r\n\xff\nrest"))
    assert list(cluster.log("p", "c")) == ["one", "\ufffd", "rest"]


def test_a_pod_that_is_gone_is_none_and_its_removal_is_no_news(server: PlayedServer, cluster: ReachedCluster) -> None:
    assert cluster.pod("p") is None
    cluster.remove_pod("p")
    assert server.asked[-1].query == {"gracePeriodSeconds": "0"}


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_cluster_that_cannot_answer_now_may_be_asked_again_later(
    status: int, server: PlayedServer, cluster: ReachedCluster
) -> None:
    server.on(f"GET {PODS}/p", Reply(status, {"message": "later"}))
    with pytest.raises(Unavailable, match="later"):
        cluster.pod("p")
    assert len(server.asked) == 1
    server.on(f"GET {PODS}/p", Reply(422, {"message": "so not"}))
    with pytest.raises(UserError, match=r"^cluster lab refuses it: so not$"):
        cluster.pod("p")


class PlayedPod(ReachedPod):
    """Its watches bring these events, one list each; between them it is looked at."""

    name = "p"

    def __init__(self, phases: list[str], watches: list[list[dict[str, Any]]]) -> None:
        self._phases = phases
        self._watches = watches
        self._api = cast(Api, SimpleNamespace(namespace="ml", watch=self._watch))
        self.versions: list[str] = []

    async def look(self) -> dict[str, Any]:
        phase = self._phases.pop(0)
        if phase == "gone":
            raise UserError("pod p is gone")
        return {"metadata": {"resourceVersion": phase}}

    async def _watch(self, path: str, version: str, **query: str) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        assert query == {"fieldSelector": "metadata.name=p"}
        self.versions.append(version)
        yield OPENED, {}
        for event in self._watches.pop(0):
            if event["type"] == "ERROR":
                raise Refused(410, "Expired", "too old")
            if event["type"] == "FORBIDDEN":
                raise Refused(403, "Forbidden", "you may not watch")
            if event["type"] == "LOST":
                raise Unavailable("silence")
            yield event["type"], event["object"]


@pytest.mark.parametrize(
    ("phases", "watches"),
    [
        (["gone"], []),
        (["1"], [[{"type": "DELETED", "object": {}}]]),
        (["1"], [[{"type": "MODIFIED", "object": {"status": {"phase": "Failed"}}}]]),
        (["1", "2"], [[{"type": "ERROR"}], [{"type": "DELETED", "object": {}}]]),
        (["1", "2"], [[{"type": "LOST"}], [{"type": "DELETED", "object": {}}]]),
        (["1"], [[{"type": "BOOKMARK", "object": {"metadata": {}}}, {"type": "DELETED", "object": {}}]]),
        (["1", "gone"], [[]]),
    ],
)
def test_the_end_of_a_pod_is_seen_whenever_it_comes(
    phases: list[str], watches: list[list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PAUSE_SECONDS", 0.0)
    pod = PlayedPod(list(phases), watches)
    asyncio.run(asyncio.wait_for(pod.end(), 10))
    assert pod.versions == [phase for phase in phases if phase != "gone"]


def a_target(server: PlayedServer) -> Target:
    unit = UnitView("j1", "0", State.RUNNING, "lab/n", cluster="lab", namespace="ml", pod="p", container="task")
    return Target(unit, server.config().kubeconfig, "")


async def test_a_pod_that_cannot_be_asked_says_why(server: PlayedServer) -> None:
    pod = f"{PODS}/p"
    async with connection.reached(a_target(server)) as reached:
        with pytest.raises(UserError, match=r"^pod p of task 0 of job j1 is gone; `yard show` says"):
            await reached.look()
        server.on(f"GET {pod}", Reply(200, {"status": {"phase": "Failed"}}), Reply(403, {"message": "you may not"}))
        with pytest.raises(UserError, match=r"^pod p of task 0 of job j1 has ended \(Failed\); "):
            await reached.look()
        with pytest.raises(UserError, match="pod p: you may not"):
            await reached.look()
        server.on(f"GET {pod}/exec", Reply(403, {"message": "you may not exec"}))
        with pytest.raises(UserError, match="pod p: you may not exec"):
            async with reached.socket("exec", [], ("v4.channel.k8s.io",)):
                pass


async def test_who_may_not_watch_a_pod_is_not_told_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be asked for again and again, in vain."""
    monkeypatch.setattr(connection, "PAUSE_SECONDS", 0.0)
    pod = PlayedPod(["1", "gone"], [[{"type": "FORBIDDEN"}]])
    waiting = asyncio.create_task(pod.end())
    for _ in range(20):
        await asyncio.sleep(0)
    assert (waiting.done(), pod.versions) == (False, ["1"])
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
