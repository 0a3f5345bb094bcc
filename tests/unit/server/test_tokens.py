"""Tokens: shown once, kept as a hash, gone when revoked."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine

from jobyard.errors import NotFound, UserError
from jobyard.server.database import open_database
from jobyard.server.tokens import create_token, is_valid, list_tokens, revoke_token


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_database(f"sqlite:///{tmp_path / 'yard.db'}")


def test_a_token_is_valid_until_it_is_revoked(engine: Engine) -> None:
    token = create_token(engine, "laptop")
    other = create_token(engine, "laptop")
    assert token.secret != other.secret
    assert is_valid(engine, token.secret)
    revoke_token(engine, token.id)
    assert not is_valid(engine, token.secret)
    assert is_valid(engine, other.secret)


@pytest.mark.parametrize("secret", ["", "yard_", "x", "' OR '1'='1", "ä", "\0"])
def test_anything_else_is_not(engine: Engine, secret: str) -> None:
    token = create_token(engine, "laptop")
    assert not is_valid(engine, secret)
    assert not is_valid(engine, token.secret[:-1])
    assert not is_valid(engine, token.id)


def test_a_secret_has_256_bits_and_is_nowhere_in_the_database(engine: Engine, tmp_path: Path) -> None:
    secret = create_token(engine, "laptop").secret
    assert len(secret.removeprefix("yard_")) >= 43
    engine.dispose()
    for path in tmp_path.iterdir():
        assert secret.removeprefix("yard_").encode() not in path.read_bytes()


def test_a_list_says_when_a_token_was_used_and_no_secret(engine: Engine) -> None:
    token = create_token(engine, "laptop")
    assert [(t.id, t.name, t.last_used_at, t.secret) for t in list_tokens(engine)] == [(token.id, "laptop", None, "")]
    is_valid(engine, token.secret)
    assert list_tokens(engine)[0].last_used_at is not None


@pytest.mark.parametrize("name", ["", "  ", "x" * 201])
def test_a_name_is_needed(engine: Engine, name: str) -> None:
    with pytest.raises(UserError, match="token name"):
        create_token(engine, name)


def test_revoking_what_is_not_there_says_so(engine: Engine) -> None:
    with pytest.raises(NotFound, match="yard token ls"):
        revoke_token(engine, "nothing")
