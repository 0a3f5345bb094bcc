"""Callers without a loop: several at once, and one that a signal interrupts."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from aiohttp import web
from tests.unit.kubernetes.played_server import PlayedServer, Reply

from jobyard.errors import UserError
from jobyard.kubernetes.blocking import BlockingApi
from jobyard.kubernetes.call_limits import CALLERS
from jobyard.kubernetes.paths import path_of
from jobyard.model.node import ClusterConfig

POD = path_of("Pod", "ml", "p")


@pytest.fixture
def blocking(server: PlayedServer) -> Iterator[BlockingApi]:
    with closing(BlockingApi(server.config(), CALLERS)) as made:
        yield made


def test_several_threads_ask_at_once(server: PlayedServer, blocking: BlockingApi) -> None:
    waiting: list[asyncio.Future[None]] = []

    async def answer_when_both_are_here(request: web.Request) -> web.StreamResponse:
        waiting.append(asyncio.get_running_loop().create_future())
        if len(waiting) == 2:
            for each in waiting:
                each.set_result(None)
        await waiting[-1]
        return web.json_response({"kind": "Pod"})

    server.on(f"GET {POD}", answer_when_both_are_here)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: blocking.run(blocking.api.get(POD)), range(2)))
    assert answers == [{"kind": "Pod"}] * 2


def test_a_signal_in_the_middle_ends_what_it_broke_off_and_the_next_question_is_answered(
    server: PlayedServer, blocking: BlockingApi
) -> None:
    """As Ctrl-C does in a build: the pod is removed after it."""
    server.on(f"GET {POD}", Reply(200, {"kind": "Pod"}))
    has_ended, main = False, threading.main_thread().ident or 0

    async def lines() -> AsyncGenerator[str, None]:
        nonlocal has_ended
        try:
            yield "first"
            signal.pthread_kill(main, signal.SIGUSR1)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # as who leaves a connection
            has_ended = True

    def leave(*_: object) -> None:
        raise SystemExit(143)

    before = signal.signal(signal.SIGUSR1, leave)
    try:
        said = blocking.each(lines())
        assert next(said) == "first"
        with pytest.raises(SystemExit):
            next(said)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert has_ended
    assert blocking.run(blocking.api.get(POD)) == {"kind": "Pod"}


def test_who_stops_early_ends_what_comes(blocking: BlockingApi) -> None:
    ended: list[str] = []

    async def lines() -> AsyncGenerator[str, None]:
        try:
            while True:
                yield "more"
        finally:
            ended.append("x")

    with closing(blocking.each(lines())) as said:  # type: ignore[type-var]
        assert next(said) == "more"
    assert ended == ["x"]
    assert list(blocking.each(_two())) == ["one", "two"]


async def _two() -> AsyncGenerator[str, None]:
    yield "one"
    yield "two"


def test_it_can_be_closed_twice_and_where_there_is_no_way_the_caller_hears_it(
    server: PlayedServer, tmp_path: Path
) -> None:
    made = BlockingApi(server.config(), CALLERS)
    assert made.api.namespace == "ml"
    made.close()
    made.close()
    with pytest.raises(UserError, match="cluster lab cannot be reached from here"):
        BlockingApi(ClusterConfig("lab", str(tmp_path / "none")), CALLERS)
