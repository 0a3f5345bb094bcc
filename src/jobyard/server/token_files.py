"""Token files: which tokens are in files of a mounted Secret? A file NAME is a token of NAME, NAME.admin an admin's."""

from __future__ import annotations

import time
from pathlib import Path

from sqlalchemy import Engine, delete, insert, select, update

from jobyard.errors import UserError
from jobyard.server.rights import TokenKind
from jobyard.server.schema import tokens
from jobyard.server.tokens import hash_of

ADMIN = ".admin"  # suffix of an admin's file
ID = "file-"  # prefix of the id of such a token
LEAST_CHARACTERS = 32  # 128 bits in hexadecimal: its hash has no salt, so a token must be too long to guess


def adopt_tokens(engine: Engine, directory: Path) -> None:
    """Make the tokens in these files valid, and tokens that were there before and are gone invalid. Repeatable.

    Raises UserError for a directory that cannot be read, and for a token that could be guessed.
    """
    found = {hash_of(secret): name for name, secret in _secrets_in(directory).items()}
    with engine.begin() as connection:
        connection.execute(delete(tokens).where(tokens.c.id.startswith(ID), tokens.c.hash.not_in(found)))
        known = set(connection.execute(select(tokens.c.hash)).scalars())
        for digest, name in found.items():
            said = {
                "name": name.removesuffix(ADMIN) or name,
                "kind": TokenKind.ADMIN if name.endswith(ADMIN) else TokenKind.MEMBER,
            }
            if digest in known:  # the file may have another name now
                is_it = (tokens.c.hash == digest) & tokens.c.id.startswith(ID)
                connection.execute(update(tokens).where(is_it).values(**said))
            else:
                row = {"id": ID + digest[:8], "hash": digest, "created_at": time.time(), **said}
                connection.execute(insert(tokens).values(**row))


def _secrets_in(directory: Path) -> dict[str, str]:
    """By file name; hidden ones are Kubernetes' own, which changes all files of a Secret at once through them."""
    try:
        files = [path for path in sorted(directory.iterdir()) if not path.name.startswith(".") and path.is_file()]
        found = {path.name: path.read_text().strip() for path in files}
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"YARD_TOKEN_DIR: {directory} cannot be read: {error}") from error
    for name, secret in found.items():
        if len(secret) < LEAST_CHARACTERS or not secret.isascii() or not secret.isprintable():
            raise UserError(
                f"the token of {name!r} in {directory} is not {LEAST_CHARACTERS} plain characters or more;"
                " `openssl rand -hex 32` prints a good one"
            )
    return found
