"""How often is a cluster asked, what becomes of its answers, and in which words does it refuse?"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from tests.unit.kubernetes.played_server import PlayedServer, Reply

from jobyard.errors import Unavailable
from jobyard.kubernetes.api import OPENED, Api
from jobyard.kubernetes.call_limits import CALLERS, SERVERS, CallLimits
from jobyard.kubernetes.channels import STATUS, STDERR, STDOUT, V4
from jobyard.kubernetes.paths import path_of
from jobyard.kubernetes.refusals import Refused

POD = path_of("Pod", "ml", "p")
PODS = path_of("Pod", "ml")
BUSY = Reply(503, {"message": "later"}, {"Retry-After": "0"})


@asynccontextmanager
async def asking(server: PlayedServer, limits: CallLimits = SERVERS) -> AsyncIterator[Api]:
    api = await Api.connect(server.config(), limits)
    try:
        yield api
    finally:
        await api.close()


async def test_a_server_asks_a_busy_cluster_again_and_a_caller_is_told(server: PlayedServer) -> None:
    server.on(f"GET {POD}", BUSY, BUSY, Reply(200, {"kind": "Pod"}))
    async with asking(server) as api:
        assert await api.get(POD) == {"kind": "Pod"}
        assert api.calls == {"get pods": 3}
    server.on(f"GET {POD}", BUSY)
    async with asking(server, CALLERS) as api:
        with pytest.raises(Unavailable, match=f"^the cluster at {server.url} is too busy: later$"):
            await api.get(POD)
        assert api.calls == {"get pods": 1}
    async with asking(server) as api:
        with pytest.raises(Unavailable, match="is too busy"):
            await api.get(POD)
        assert api.calls == {"get pods": 5}


async def test_where_nobody_answers_only_what_may_be_done_twice_is_asked_again(server: PlayedServer) -> None:
    server.url = "http://127.0.0.1:1"
    async with asking(server) as api:
        with pytest.raises(Unavailable, match=r"^the cluster at http://127\.0\.0\.1:1 does not answer: "):
            await api.get(POD)
        with pytest.raises(Unavailable, match="does not answer"):
            await api.create(PODS, {"kind": "Pod"})
        assert api.calls == {"get pods": 5, "create pods": 1}


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(409, {"reason": "AlreadyExists", "message": "it is there"}), "it is there"),
        (Reply(403, b""), "Forbidden"),
        (Reply(500, b"<p>\n no </p>"), "<p> no </p>"),
        (Reply(400, b"[]"), "[]"),
    ],
)
async def test_a_refusal_has_the_words_of_whoever_refused(server: PlayedServer, reply: Reply, words: str) -> None:
    server.on(f"GET {POD}", reply)
    async with asking(server) as api:
        with pytest.raises(Refused) as raised:
            await api.get(POD)
    assert (str(raised.value), raised.value.status) == (words, reply.status)
    assert raised.value.is_there_already == (reply.status == 409)
    assert raised.value.is_forbidden == (reply.status == 403)


async def test_an_answer_that_is_no_object_is_no_answer(server: PlayedServer) -> None:
    server.on(f"GET {POD}", Reply(200, b"<html>"))
    async with asking(server) as api:
        with pytest.raises(Unavailable, match="does not answer as one: b'<html>'"):
            await api.get(POD)


async def test_what_is_gone_already_is_deleted(server: PlayedServer) -> None:
    async with asking(server) as api:
        await api.delete(POD, grace_seconds=3)
        server.on(f"DELETE {POD}", Reply(403, {"message": "no"}))
        with pytest.raises(Refused, match="no"):
            await api.delete(POD)
    first, second = (each.body for each in server.asked)
    assert (first["propagationPolicy"], first["gracePeriodSeconds"]) == ("Background", 3)
    assert "gracePeriodSeconds" not in second


async def test_a_patch_merges_and_an_apply_takes_over(server: PlayedServer) -> None:
    server.on(f"PATCH {POD}", Reply())
    server.on(f"POST {PODS}", Reply())
    async with asking(server) as api:
        await api.patch(POD, {})
        await api.apply(POD, {})
        await api.create(PODS, {}, dryRun="All")
        assert api.calls == {"patch pods": 1, "apply pods": 1, "create pods": 1}
    kinds = [each.headers["Content-Type"] for each in server.asked]
    assert kinds == ["application/merge-patch+json", "application/apply-patch+yaml", "application/json"]
    queries = [each.query for each in server.asked]
    manager = {"fieldManager": "jobyard"}
    assert queries == [manager, manager | {"force": "true"}, manager | {"dryRun": "All"}]


async def test_a_watch_brings_changes_and_is_refused_in_the_middle(server: PlayedServer) -> None:
    changed = {"type": "MODIFIED", "object": {"metadata": {"name": "p"}}}
    too_old = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    server.on(f"GET {PODS}", Reply(200, [changed, too_old]), Reply(403, {"message": "no"}))
    async with asking(server) as api:
        events = api.watch(PODS, "7", fieldSelector="metadata.name=p")
        assert [(await anext(events))[0] for _ in range(2)] == [OPENED, "MODIFIED"]
        with pytest.raises(Refused, match="too old") as raised:
            await anext(events)
        assert raised.value.status == 410
        with pytest.raises(Refused, match="no"):
            await anext(api.watch(PODS, "7"))
    query = {"watch": "1", "resourceVersion": "7", "allowWatchBookmarks": "true"}
    assert server.asked[0].query == query | {"fieldSelector": "metadata.name=p"}


async def test_the_output_of_a_container_comes_as_it_is(server: PlayedServer) -> None:
    server.on(f"GET {POD}/log", Reply(200, b"one\ntwo"), Reply(400, {"message": "it waits"}))
    async with asking(server) as api:
        assert b"".join([piece async for piece in api.log("p", "c", follow=True)]) == b"one\ntwo"
        with pytest.raises(Refused, match="it waits"):
            await anext(api.log("p", "c", follow=False))
    assert [each.query for each in server.asked] == [{"container": "c", "follow": "true"}, {"container": "c"}]


def command(*messages: tuple[int, bytes]) -> object:
    """One that runs in a pod, and says this."""

    async def run(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=(V4,))
        await socket.prepare(request)
        for channel, data in messages:
            await socket.send_bytes(bytes((channel,)) + data)
        await socket.close()
        return socket

    return run


def status(**said: object) -> tuple[int, bytes]:
    return STATUS, json.dumps(said).encode()


FAILED = status(status="Failure", message="exit 3", details={"causes": [{"reason": "ExitCode", "message": "3"}]})


@pytest.mark.parametrize(
    ("messages", "said", "refused"),
    [
        ([(STDOUT, b"a"), (STDERR, b"b"), status(status="Success")], "ab", ""),
        ([(STDERR, b"no space\n"), FAILED], "", "no space"),
        ([FAILED], "", "exit 3"),
    ],
)
async def test_a_command_in_a_pod_says_how_it_ended(
    server: PlayedServer, messages: Sequence[tuple[int, bytes]], said: str, refused: str
) -> None:
    server.on(f"GET {POD}/exec", command(*messages))  # type: ignore[arg-type]
    async with asking(server) as api:
        if refused:
            with pytest.raises(Refused, match=refused):
                await api.run("p", "c", ["sh", "-c", "x"], 30)
        else:
            assert await api.run("p", "c", ["sh", "-c", "x"], 30) == said
        assert api.calls == {"create pods/exec": 1}
    assert server.asked[0].query["container"] == "c"


async def test_a_socket_that_is_refused_tells_the_words_and_not_only_the_number(server: PlayedServer) -> None:
    server.on(f"GET {POD}/portforward", Reply(403, {"message": "you may not"}))
    async with asking(server, CALLERS) as api:
        with pytest.raises(Refused, match=r"^you may not$") as raised:
            async with api.socket("p", "portforward", [("ports", "80")], (V4,)):
                pass
        assert raised.value.is_forbidden
        server.on(f"GET {POD}/exec", Reply(500, b""), Reply(200))
        with pytest.raises(Refused, match=r"^500 "):
            async with api.socket("p", "exec", [], (V4,)):
                pass
