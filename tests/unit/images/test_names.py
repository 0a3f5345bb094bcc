"""What is an image called?"""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.errors import UserError
from jobyard.images.names import (
    ImageName,
    Registry,
    commit_tag,
    is_loopback,
    parse_registry,
    personal_tag,
    repository_of,
    split_image,
)
from jobyard.model.source import GitState

COMMIT = "3f" * 20
REPOSITORY = re.compile(
    r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*"
)  # of the specification
TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")


@pytest.mark.parametrize(
    ("text", "registry"),
    [
        ("registry.lab", Registry("registry.lab")),
        ("registry.lab:5000/team/x", Registry("registry.lab:5000", "team/x")),
        ("registry.lab/", Registry("registry.lab")),
        ("http://registry.lab:5000", Registry("registry.lab:5000", is_plain=True)),
        ("https://127.0.0.1:5000/team", Registry("127.0.0.1:5000", "team")),
        ("127.0.0.1:5000", Registry("127.0.0.1:5000", is_plain=True)),
        ("localhost:5000", Registry("localhost:5000", is_plain=True)),
        ("[::1]:5000", Registry("[::1]:5000", is_plain=True)),
    ],
)
def test_a_registry_is_a_host_with_a_port_and_a_path_and_speaks_tls_unless_it_is_here(
    text: str, registry: Registry
) -> None:
    assert parse_registry(text, "--registry") == registry


@pytest.mark.parametrize(
    "text",
    ["", "/", "ftp://registry.lab", "registry.lab/Team", "registry lab", "registry.lab:99999", "lab/a//b", "-lab"],
)
def test_what_is_no_registry_is_refused_with_the_way_to_write_one(text: str) -> None:
    with pytest.raises(UserError, match=r"--registry: .* is not a registry; write HOST"):
        parse_registry(text, "--registry")


def test_loopback_is_told_by_address_not_by_looks() -> None:
    assert is_loopback("127.3.2.1:80")
    assert not is_loopback("127.0.0.1.example.org")
    assert not is_loopback("localhost.example.org:5000")


@pytest.mark.parametrize(
    ("name", "repository"),
    [("My_App", "my_app"), ("Été 2026", "t-2026"), ("a..b", "a-b"), ("--x--", "x"), ("Team/Train", "team/train")],
)
def test_a_directorys_name_becomes_a_repository(name: str, repository: str) -> None:
    assert repository_of(name, "--context") == repository


@given(st.text(max_size=40))
def test_a_repository_is_always_one_or_refused(name: str) -> None:
    with suppress(UserError):
        assert REPOSITORY.fullmatch(repository_of(name, "--context"))


def test_the_tag_is_the_commit_and_a_hash_stands_behind_it_where_the_commit_does_not_say_all() -> None:
    plain = commit_tag(GitState(COMMIT), {"target": "", "build_args": {}})
    assert plain == COMMIT
    others = {
        commit_tag(GitState(COMMIT), {"target": "main"}),
        commit_tag(GitState(COMMIT), {"build_args": {"A": "1"}}),
        commit_tag(GitState(COMMIT), {"build_args": {"A": "2"}}),
        commit_tag(GitState(COMMIT, subdir="parts/one"), {}),
    }
    assert len(others) == 4
    assert all(tag.startswith(f"{COMMIT}-") and TAG.fullmatch(tag) for tag in others)
    same = {commit_tag(GitState(COMMIT), {"build_args": args}) for args in ({"A": "1", "B": "2"}, {"B": "2", "A": "1"})}
    assert len(same) == 1, "the order of arguments means nothing"


@given(st.text(max_size=200))
def test_a_personal_tag_is_always_a_tag(user: str) -> None:
    assert TAG.fullmatch(personal_tag(user, "0a1b2c3d"))


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("demo", ("", "demo")),
        ("team/demo:1", ("", "team/demo")),
        ("eu.example/team/demo:1", ("eu.example", "team/demo")),
        ("localhost:5000/demo", ("localhost:5000", "demo")),
        ("demo@sha256:00", ("", "demo")),
        ("", ("", "")),
    ],
)
def test_a_manifests_image_may_name_its_registry_and_its_tag_is_dropped(image: str, parts: tuple[str, str]) -> None:
    assert split_image(image) == parts


def test_an_image_has_a_name_with_and_without_its_tag() -> None:
    name = ImageName(Registry("lab:5000", "team"), "app", "1")
    assert (str(name), name.untagged, name.path) == ("lab:5000/team/app:1", "lab:5000/team/app", "team/app")
