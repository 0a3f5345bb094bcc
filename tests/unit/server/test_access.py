"""Access over TCP: refusals take longer each time, for one address, and a good token never waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from starlette.types import Message, Receive, Scope, Send

from jobyard.server.access import NeedsToken, Revocations
from jobyard.server.connection_table import ON_GOOD_TOKEN
from jobyard.server.database import open_database
from jobyard.server.failed_logins import ADDRESSES_MOST, FORGET_SECONDS, FailedLogins, is_worth_a_line
from jobyard.server.tokens import create_token, holder_of, revoke_token
from tests.waiting import PATIENCE_SECONDS


def test_each_further_failure_of_an_address_takes_twice_as_long_up_to_a_limit() -> None:
    failed = FailedLogins(1.0)
    waits = [failed.note("10.0.0.1", 0.0)[1] for _ in range(10)]
    assert waits == [0.0, 0.0, 0.0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert failed.note("10.0.0.2", 0.0) == (1, 0.0)
    assert failed.note("10.0.0.1", FORGET_SECONDS + 1) == (1, 0.0)


def test_whoever_guesses_for_ever_costs_no_more_memory_and_no_overflow() -> None:
    failed = FailedLogins(5.0)
    for number in range(3 * ADDRESSES_MOST):
        failed.note(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    assert len(failed) == ADDRESSES_MOST
    assert [failed.note("10.9.9.9", 0.0)[1] for _ in range(3000)][-1] == 5.0


def test_addresses_of_one_ipv6_network_count_as_one() -> None:
    failed = FailedLogins(5.0)
    assert [failed.note(f"2001:db8::{n}", 0.0)[0] for n in range(1, 4)] == [1, 2, 3]
    assert failed.note("2001:db8:0:1::1", 0.0)[0] == 1


def test_the_log_has_a_line_at_each_doubling() -> None:
    assert [count for count in range(1, 40) if is_worth_a_line(count)] == [1, 2, 4, 8, 16, 32]


async def test_a_good_token_does_not_wait_where_wrong_ones_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    good = create_token(engine, "laptop").secret
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("jobyard.server.access.asyncio.sleep", sleep)
    guarded = NeedsToken(_app, engine, Revocations(), 5.0)
    statuses = [await _status(guarded, token) for token in ["wrong"] * 5 + [good, "wrong", "", good]]
    assert statuses == [401] * 5 + [200, 401, 401, 200]
    assert waited == [0.1, 0.2, 0.4]  # a missing token is no guess
    engine.dispose()


async def test_only_a_good_token_is_told_to_who_keeps_the_connections(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    good, told = create_token(engine, "laptop").secret, list[str]()
    guarded = NeedsToken(_app, engine, Revocations(), 0.0)
    for token in ("wrong", "", good):
        await _status(guarded, token, on_good_token=partial(told.append, token))
    assert told == [good]
    engine.dispose()


async def test_a_token_is_looked_up_while_all_other_threads_wait_for_a_disk(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    good, disk = create_token(engine, "laptop").secret, threading.Event()
    waiting = [asyncio.create_task(asyncio.to_thread(disk.wait)) for _ in range(100)]
    await asyncio.sleep(0)  # they begin
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await _status(NeedsToken(_app, engine, Revocations(), 5.0), good) == 200
    finally:
        disk.set()
        await asyncio.gather(*waiting)
    engine.dispose()


async def test_a_change_that_is_under_way_ends_well_though_its_token_is_revoked(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    token = create_token(engine, "laptop")
    revocations, begun, go_on = Revocations(), asyncio.Semaphore(0), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.release()
        await go_on.wait()
        await _app(scope, receive, send)

    answers = [
        asyncio.create_task(_status(NeedsToken(app, engine, revocations, 0.0), token.secret, method))
        for method in ("POST", "GET")
    ]
    await begun.acquire()
    await begun.acquire()
    revocations.revoke(token.id)
    assert await answers[1] == 401  # what only reads is cut
    go_on.set()
    assert await answers[0] == 200
    assert len(revocations) == 0
    engine.dispose()


async def test_a_token_that_is_revoked_while_it_is_looked_up_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'yard.db'}")
    token, revocations = create_token(engine, "laptop"), Revocations()
    loop, found = asyncio.get_running_loop(), list[Any]()

    def revoke() -> None:
        revoke_token(engine, token.id)
        revocations.revoke(token.id)

    def look(engine: Engine, secret: str) -> Any:
        """In a thread; the server revokes it before it hears what was found."""
        found.append(holder_of(engine, secret))
        if found[-1]:
            loop.call_soon_threadsafe(revoke)
        return found[-1]

    monkeypatch.setattr("jobyard.server.access.holder_of", look)
    assert await _status(NeedsToken(_app, engine, revocations, 0.0), token.secret) == 401
    assert [bool(each) for each in found] == [True, False]
    engine.dispose()


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


async def _status(
    app: NeedsToken, token: str, method: str = "GET", *, on_good_token: Callable[[], None] = lambda: None
) -> int:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    headers: list[Any] = [(b"authorization", f"Bearer {token}".encode())] if token else []
    scope: Scope = {"type": "http", "method": method, "path": "/api/v1/jobs", "headers": headers}
    scope["client"] = ("10.0.0.1", 1)
    scope["state"] = {ON_GOOD_TOKEN: on_good_token}
    await app(scope, receive, send)
    status: int = sent[0]["status"]
    return status
