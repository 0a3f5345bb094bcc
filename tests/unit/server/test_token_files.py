"""Tokens of a mounted Secret: valid while their file stands there."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine

from jobyard.errors import UserError
from jobyard.server.rights import Caller, TokenKind
from jobyard.server.token_files import adopt_tokens
from jobyard.server.tokens import create_token, hash_of, holder_of, list_tokens

ALICE, BOB = "a" * 64, "yard_" + "b" * 43


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """As Kubernetes mounts one: the files are links into a hidden directory."""
    mounted = tmp_path / "tokens"
    (mounted / "..2026").mkdir(parents=True)
    (mounted / "..data").symlink_to("..2026")
    for name, text in (("alice", ALICE), ("bob", f"{BOB}\n")):
        (mounted / "..data" / name).write_text(text)
        (mounted / name).symlink_to(f"..data/{name}")
    return mounted


def test_whoever_has_a_token_of_the_secret_comes_in_by_the_name_of_its_file(engine: Engine, secret: Path) -> None:
    adopt_tokens(engine, secret)
    adopt_tokens(engine, secret)
    assert (_name(engine, ALICE), _name(engine, BOB)) == ("alice", "bob")
    assert [(token.name, token.secret) for token in list_tokens(engine)] == [("alice", ""), ("bob", "")]


def test_a_token_that_left_the_secret_is_revoked_and_others_are_not(engine: Engine, secret: Path) -> None:
    made = create_token(engine, "laptop")
    adopt_tokens(engine, secret)
    (secret / "alice").unlink()
    (secret / "bob").unlink()
    (secret / "bob").write_text("c" * 64)
    adopt_tokens(engine, secret)
    assert holder_of(engine, ALICE) is None
    assert holder_of(engine, BOB) is None
    assert _name(engine, "c" * 64) == "bob"
    assert _name(engine, made.secret) == "laptop"


@pytest.mark.parametrize("text", ["", "secret", "ä" * 64, f"{ALICE}\n{BOB}"])
def test_a_token_that_could_be_guessed_or_is_none_is_refused_by_name(engine: Engine, secret: Path, text: str) -> None:
    (secret / "carol").write_text(text)
    with pytest.raises(UserError, match="token of 'carol'") as refusal:
        adopt_tokens(engine, secret)
    assert text not in str(refusal.value) or text in ("", "secret")
    assert holder_of(engine, ALICE) is None


def test_a_directory_that_is_not_there_is_named(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"YARD_TOKEN_DIR: .*nowhere"):
        adopt_tokens(engine, tmp_path / "nowhere")


def test_a_file_whose_name_ends_so_is_an_admins(engine: Engine, secret: Path) -> None:
    adopt_tokens(engine, secret)
    (secret / "alice").rename(secret / "alice.admin")
    adopt_tokens(engine, secret)
    assert holder_of(engine, ALICE) == Caller("alice", "file-" + hash_of(ALICE)[:8], TokenKind.ADMIN)
    assert [(token.name, token.kind) for token in list_tokens(engine)] == [("alice", "admin"), ("bob", "member")]
    (secret / "alice.admin").rename(secret / "alice")
    adopt_tokens(engine, secret)
    assert [token.kind for token in list_tokens(engine)] == ["member", "member"]


def _name(engine: Engine, secret: str) -> str:
    caller = holder_of(engine, secret)
    assert caller is not None
    return caller.name
