"""What .gitignore leaves out, asked of git itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.staging.tree import EntryKind, scan
from tests.unit.staging.trees import plant

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(scope="module")
def repository() -> Iterator[Path]:
    """One repository for many examples: only its work tree changes."""
    with tempfile.TemporaryDirectory() as directory:
        _git(Path(directory), "init", "-q")
        yield Path(directory)


def _git(directory: Path, *arguments: str) -> bytes:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", "-C", directory, *arguments], env=env, check=True, stdout=subprocess.PIPE).stdout


def _sent(root: Path) -> set[bytes]:
    return {entry.path for entry in scan(root).entries if entry.kind is not EntryKind.DIRECTORY}


def _not_ignored_by_git(root: Path, ignore_file: str = ".gitignore") -> set[bytes]:
    listed = _git(root, "ls-files", "-o", "-z", f"--exclude-per-directory={ignore_file}")
    return set(listed.split(b"\0")) - {b""}


def _clear(root: Path) -> None:
    for path in root.iterdir():
        if path.name != ".git":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


NAMES = [
    b"a",
    b"b",
    b"ab",
    b"a.b",
    b"a b",
    b"a ",
    b"\xc3\xbc",
    b"a\nb",
    b".a",
    b"-",
    b"[",
    b"!a",
    b"#",
    b"a\\",
    b"\xff",
]
PIECES = [
    *(
        b"a",
        b"b",
        b"*",
        b"**",
        b"/",
        b"?",
        b"\\",
        b" ",
        b".",
        b"!",
        b"#",
        b"\t",
        b"\r",
        b"-",
        b"\xc3\xbc",
        b"**/",
        b"/**",
    ),
    *(b"[ab]", b"[!a]", b"[^a]", b"[a-b]", b"[]a]", b"[[:alpha:]]", b"[[:nothing:]]", b"[", b"]", b"[\\]a]", b"[a-"),
]
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map(b"/".join)
wild = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map(b"".join)
mild = st.lists(st.sampled_from([b"a", b"b", b"ab", b"*", b"**", b"a*", b"?", b""]), min_size=1, max_size=4).map(
    b"/".join
)
patterns = st.builds(bytes.__add__, st.sampled_from([b"", b"", b"!"]), wild | mild)
texts = st.lists(patterns, min_size=1, max_size=5).map(b"\n".join)


def _plant_what_fits(root: Path, files: Mapping[bytes, bytes]) -> None:
    for path, content in files.items():
        try:
            plant(root, {path: content})
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue  # a file and a directory of one name


@settings(max_examples=200, deadline=None)
@given(
    files=st.lists(paths, min_size=1, max_size=15),
    rules=st.dictionaries(st.one_of(st.just(b""), paths), texts, min_size=1, max_size=3),
)
def test_what_is_sent_is_what_git_does_not_ignore(
    repository: Path, files: list[bytes], rules: dict[bytes, bytes]
) -> None:
    _clear(repository)
    _plant_what_fits(repository, dict.fromkeys(files, b""))
    _plant_what_fits(repository, {os.path.join(directory, b".gitignore"): text for directory, text in rules.items()})
    assert _sent(repository) == _not_ignored_by_git(repository)


TREE = [
    *(
        "a",
        "b.pyc",
        "keep.pyc",
        "build/x",
        "src/build/x",
        "src/a.py",
        "src/deep/er/a.log",
        "logs/x/debug.log",
        "logs/debug.log",
    ),
    *(
        "docs/build",
        "file with space",
        "trailing ",
        "#hash",
        "!bang",
        "data/raw/1",
        "data/small/1",
        "out/keep",
        "out/drop",
    ),
]


@pytest.mark.parametrize(
    "text",
    [
        "*.pyc\n!keep.pyc",
        "build/",
        "/build/",
        "build",
        "logs/**/debug.log",
        "**/er",
        "src/**",
        "data/*\n!data/small/",
        "data/\n!data/small/",  # what lies in an ignored directory cannot come back
        "out/*\n!out/keep",
        "\\#hash\n\\!bang",
        "trailing\\ \nfile with space   ",
        "# a comment\n\n*.log\r\n",
        "\ufeffa",
        "*",
        "*\n!*/\n!*.py",
        "/*\n!/src",
        "src/deep/*/a.log",
        "?",
        "[a-b]*",
        "[",
        "a\\",
    ],
)
@pytest.mark.parametrize("ignore_file", [".gitignore", ".yardignore"])
def test_the_usual_rules_mean_what_they_mean_to_git(repository: Path, text: str, ignore_file: str) -> None:
    _clear(repository)
    plant(repository, {**dict.fromkeys(TREE, b""), ignore_file: text.encode()})
    assert _sent(repository) == _not_ignored_by_git(repository, ignore_file)


def test_in_a_subdirectory_of_a_work_tree_the_rules_above_count(repository: Path) -> None:
    _clear(repository)
    files = ["sub/a.log", "sub/keep.log", "sub/data/x", "sub/deep/data/x", "sub/a", "data/x"]
    rules = {".gitignore": b"*.log\n/sub/data\n", "sub/.gitignore": b"!keep.log\n"}
    plant(repository, {**dict.fromkeys(files, b""), **rules})
    from_below = {path.removeprefix(b"sub/") for path in _not_ignored_by_git(repository) if path.startswith(b"sub/")}
    assert _sent(repository / "sub") == from_below == {b".gitignore", b"a", b"keep.log", b"deep/data/x"}


def test_rules_of_a_directory_above_do_not_count_where_there_is_no_work_tree(tmp_path: Path) -> None:
    plant(tmp_path, {".gitignore": b"*", "sub/a": b""})
    assert _sent(tmp_path / "sub") == {b"a"}


def test_yardignore_has_the_last_word_in_its_directory(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {".gitignore": b"*.bin\n", ".yardignore": b"!model.bin\nbig\n", "model.bin": b"", "x.bin": b"", "big": b""},
    )
    assert _sent(tmp_path) == {b".gitignore", b".yardignore", b"model.bin"}


def test_an_ignore_file_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    plant(tmp_path, {"rules": b"a", ".gitignore": "rules", "a": b""})
    assert b"a" in _sent(tmp_path)
