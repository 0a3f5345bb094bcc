"""Tokens: who may call a server on TCP? Holders of a token: 256 random bits, of which we store only a hash."""

from __future__ import annotations

import hashlib
import logging
import secrets
import time

from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from jobyard.errors import NotFound, UserError
from jobyard.server.rights import Caller, TokenKind
from jobyard.server.schema import tokens
from jobyard.wire.views import TokenView

log = logging.getLogger(__name__)

PREFIX = "yard_"
USE_SECONDS = 60.0  # the last use is written down this often at most


def create_token(engine: Engine, name: str, kind: TokenKind = TokenKind.MEMBER) -> TokenView:
    if not name.strip() or len(name) > 200:
        raise UserError(f"token name {name!r}: give 1 to 200 characters, like the machine that will use it")
    secret = PREFIX + secrets.token_urlsafe(32)
    view = TokenView(secrets.token_hex(4), name, time.time(), secret=secret, kind=kind)
    with engine.begin() as connection:
        row = {"id": view.id, "name": name, "hash": hash_of(secret), "created_at": view.created_at, "kind": kind}
        connection.execute(insert(tokens).values(**row))
    return view


def list_tokens(engine: Engine) -> list[TokenView]:
    with engine.connect() as connection:
        rows = connection.execute(select(tokens).order_by(tokens.c.created_at))
        return [TokenView(row.id, row.name, row.created_at, row.last_used_at, kind=row.kind) for row in rows]


def revoke_token(engine: Engine, token_id: str) -> None:
    with engine.begin() as connection:
        if not connection.execute(delete(tokens).where(tokens.c.id == token_id)).rowcount:
            raise NotFound(f"no token {token_id!r}; `yard token ls` lists them")


def holder_of(engine: Engine, secret: str) -> Caller | None:
    """The holder of the token with this secret; None where there is none.

    A random 256-bit secret needs no slow hash, and comparing hashes leaks nothing of it.
    """
    with engine.connect() as connection:
        found = connection.execute(select(tokens).where(tokens.c.hash == hash_of(secret))).one_or_none()
    if found is None:
        return None
    now = time.time()
    if found.last_used_at is None or not 0 <= now - found.last_used_at < USE_SECONDS:
        _note_use(engine, found.id, now)
    return Caller(found.name, found.id, TokenKind(found.kind))


def _note_use(engine: Engine, token_id: str, now: float) -> None:
    try:
        with engine.begin() as connection:
            connection.execute(update(tokens).where(tokens.c.id == token_id).values(last_used_at=now))
    except SQLAlchemyError as error:  # a full disk must not lock users out
        log.warning("the use of token %s is not written down: %s", token_id, error)


def hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
