"""Tokens: shown once, kept as a hash, gone when revoked."""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request
from sqlalchemy import Engine, text
from starlette.types import Receive, Scope, Send

from jobyard.errors import NotFound, UserError
from jobyard.server.access import NeedsToken, Revocations
from jobyard.server.rights import Caller, TokenKind, caller_of
from jobyard.server.tokens import create_token, holder_of, list_tokens, revoke_token


def test_a_token_holder_of_until_it_is_revoked(engine: Engine) -> None:
    token = create_token(engine, "laptop")
    other = create_token(engine, "laptop")
    assert token.secret != other.secret
    assert holder_of(engine, token.secret)
    revoke_token(engine, token.id)
    assert not holder_of(engine, token.secret)
    assert holder_of(engine, other.secret)


@pytest.mark.parametrize("secret", ["", "yard_", "x", "' OR '1'='1", "ä", "\0"])
def test_anything_else_is_not(engine: Engine, secret: str) -> None:
    token = create_token(engine, "laptop")
    assert not holder_of(engine, secret)
    assert not holder_of(engine, token.secret[:-1])
    assert not holder_of(engine, token.id)


def test_a_secret_has_256_bits_and_is_nowhere_in_the_database(engine: Engine, tmp_path: Path) -> None:
    secret = create_token(engine, "laptop").secret
    assert len(secret.removeprefix("yard_")) >= 43
    engine.dispose()
    for path in tmp_path.iterdir():
        assert secret.removeprefix("yard_").encode() not in path.read_bytes()


def test_a_list_says_when_a_token_was_used_and_no_secret(engine: Engine) -> None:
    token = create_token(engine, "laptop")
    assert [(t.id, t.name, t.last_used_at, t.secret) for t in list_tokens(engine)] == [(token.id, "laptop", None, "")]
    holder_of(engine, token.secret)
    assert list_tokens(engine)[0].last_used_at is not None


@pytest.mark.parametrize("name", ["", "  ", "x" * 201])
def test_a_name_is_needed(engine: Engine, name: str) -> None:
    with pytest.raises(UserError, match="token name"):
        create_token(engine, name)


def test_revoking_what_is_not_there_says_so(engine: Engine) -> None:
    with pytest.raises(NotFound, match="yard token ls"):
        revoke_token(engine, "nothing")


def test_the_last_use_is_written_once_a_minute(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    token = create_token(engine, "laptop")
    now = time.time()
    for later, noted in ((0, 0), (59, 0), (61, 61), (62, 61)):
        monkeypatch.setattr("jobyard.server.tokens.time.time", lambda later=later: now + later)
        assert holder_of(engine, token.secret) == Caller("laptop", token.id, TokenKind.MEMBER)
        assert list_tokens(engine)[0].last_used_at == now + noted


def test_a_database_that_cannot_be_written_keeps_nobody_out(engine: Engine) -> None:
    token = create_token(engine, "laptop")
    with engine.begin() as connection:
        words = "CREATE TRIGGER full BEFORE UPDATE ON tokens BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        connection.execute(text(words))
    assert holder_of(engine, token.secret) == Caller("laptop", token.id, TokenKind.MEMBER)


async def test_a_call_knows_whose_token_it_came_with(engine: Engine) -> None:
    token = create_token(engine, "laptop")
    callers: list[Caller] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        callers.append(caller_of(Request(scope)))

    async def nothing(*_: Any) -> Any: ...

    headers = [(b"authorization", f"Bearer {token.secret}".encode())]
    scope = {"type": "http", "method": "GET", "path": "/api/v1/jobs", "headers": headers}
    guarded = NeedsToken(app, engine, Revocations(), 0.0)
    await guarded(dict(scope), nothing, nothing)
    await guarded({**scope, "headers": []}, nothing, nothing)
    await app(scope, nothing, nothing)
    assert callers == [Caller("laptop", token.id, TokenKind.MEMBER), Caller(pwd.getpwuid(os.getuid()).pw_name)]
