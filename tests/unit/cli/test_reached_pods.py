"""What becomes of a Secret that is made by half, of a right that is missing, of a watch that breaks? With an API server
that only plays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from jobyard.cli.pods import connection
from jobyard.cli.pods.cluster import ReachedCluster
from jobyard.cli.pods.connection import Pod
from jobyard.errors import Unavailable, UserError

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


class Answer:
    """Of an API server, to every question."""

    reason = "Forbidden"

    def __init__(self, status: int, text: str) -> None:
        self.status, self._text = status, text

    def __call__(self, *_: object, **__: object) -> Answer:
        return self

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def text(self) -> str:
        return self._text


@contextmanager
def answering(status: int, text: str) -> Iterator[ReachedCluster]:
    async def headers(path: str) -> dict[str, str]:
        return {}

    answer = Answer(status, text)
    http = SimpleNamespace(get=answer, request=answer)
    link = SimpleNamespace(namespace="ml", http=http, url=lambda path, query: path, headers=headers)
    with asyncio.Runner() as runner:
        yield ReachedCluster(link, runner, "lab")  # type: ignore[arg-type]


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
    ask: Callable[[ReachedCluster], object], right: str, status: int
) -> None:
    words = json.dumps({"message": "pods is forbidden: User ada"})
    with answering(status, words) as cluster, pytest.raises(UserError) as raised:
        ask(cluster)
    assert str(raised.value) == f"cluster lab does not let you {right} in namespace ml: pods is forbidden: User ada"
    with answering(status, "") as cluster, pytest.raises(UserError, match="in namespace ml: Forbidden"):
        ask(cluster)


def test_the_log_of_a_container_that_has_not_begun_is_empty() -> None:
    with answering(400, "") as cluster:
        assert list(cluster.log("p", "c")) == []


def test_a_signal_in_the_middle_leaves_a_loop_that_can_go_on() -> None:
    class Waiting(ReachedCluster):
        def __init__(self, runner: asyncio.Runner) -> None:
            self._runner = runner

        async def _log(self, pod: str, container: str) -> Any:
            yield "first"
            asyncio.get_running_loop().call_soon(leave)
            await asyncio.Event().wait()

    def leave() -> None:
        raise SystemExit(143)

    with asyncio.Runner() as runner:
        lines = Waiting(runner).log("p", "c")
        assert next(lines) == "first"
        with pytest.raises(SystemExit):
            next(lines)
        assert runner.run(asyncio.sleep(0, "on")) == "on"


class PlayedPod(Pod):
    """Its watches bring these events, one list each; between them it is looked at."""

    name = "p"

    def __init__(self, phases: list[str], watches: list[list[dict[str, Any]]]) -> None:
        self._phases = phases
        self._watches = watches
        self.versions: list[str] = []

    _pods = "/pods"

    async def look(self) -> dict[str, Any]:
        phase = self._phases.pop(0)
        if phase == "gone":
            raise UserError("pod p is gone")
        return {"metadata": {"resourceVersion": phase}}

    @asynccontextmanager
    async def _get(self, path: str, query: Any = ()) -> AsyncIterator[Any]:
        self.versions.append(dict(query)["resourceVersion"])
        events = self._watches.pop(0)

        class Answer:
            status = 200

            @property
            async def content(self) -> Any:
                for event in events:
                    yield json.dumps(event).encode()

        yield Answer()


@pytest.mark.parametrize(
    ("phases", "watches"),
    [
        (["gone"], []),
        (["1"], [[{"type": "DELETED", "object": {}}]]),
        (["1"], [[{"type": "MODIFIED", "object": {"status": {"phase": "Failed"}}}]]),
        (["1", "2"], [[{"type": "ERROR", "object": {"status": "Failure"}}], [{"type": "DELETED", "object": {}}]]),
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
