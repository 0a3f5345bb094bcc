"""Which files go along."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobyard.errors import UserError
from jobyard.staging.tree import EntryKind, scan
from jobyard.staging.tree_snapshot import snapshot
from tests.unit.staging.trees import plant


def _paths(root: Path, *copy_forward: str) -> list[bytes]:
    return [entry.path for entry in scan(root, copy_forward).entries]


def test_all_is_sent_but_git_and_results(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {"a": b"", "b/.git/config": b"", "b/c": b"", ".git": b"", "job_results/1/x": b"", "b/job_results": b""},
    )
    assert _paths(tmp_path) == [b"a", b"b", b"b/c"]


def test_names_of_any_bytes_and_empty_directories_are_sent_sorted(tmp_path: Path) -> None:
    names = [b" ", b"a b/c\nd", b"\xff\xfe", "grün".encode(), b"-", b"a-b", b"a/b", b"x'\"$(y)"]
    plant(tmp_path, {**dict.fromkeys(names, b""), b"empty": None})
    found = _paths(tmp_path)
    assert found == sorted([*names, b"empty", b"a", b"a b"])


def test_links_are_sent_as_links_and_those_that_lead_outside_are_noted(tmp_path: Path) -> None:
    links = {"in": "a", "dangling": "nowhere", "to directory": "d", "up": "d/../a"}
    outside = {"d/out": "../../x", "absolute": "/etc", "loop": "loop"}
    plant(tmp_path, {"a": b"", "d": None, **links, **outside})
    tree = scan(tmp_path)
    targets = {os.fsdecode(entry.path): entry.target for entry in tree.entries if entry.kind is EntryKind.LINK}
    assert targets == {name: target.encode() for name, target in {**links, **outside}.items()}
    expected = "links that lead outside the tree are sent as they are: 'absolute' -> '/etc', 'd/out' -> '../../x'"
    assert tree.notes == (expected,)


def test_sockets_and_pipes_are_left_out_and_noted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        directory = os.open(tmp_path, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{directory}/socket")
        os.close(directory)
        tree = scan(tmp_path)
    assert tree.entries == ()
    assert tree.notes == ("neither file, directory nor link, and not sent: 'pipe', 'socket'",)


def test_many_notes_are_cut_short(tmp_path: Path) -> None:
    plant(tmp_path, {f"link{number}": "/x" for number in range(10)})
    (note,) = scan(tmp_path).notes
    assert note.endswith("'link2' -> '/x' and 7 more")


def test_a_yard_inside_the_tree_does_not_pack_itself(tmp_path: Path) -> None:
    plant(tmp_path, {"a": b"", ".yard/x": b""})
    first = snapshot(tmp_path, tmp_path / ".yard")
    assert snapshot(tmp_path, tmp_path / ".yard").hash == first.hash
    assert first.files == 1


def test_copy_forward_limits_what_is_sent(tmp_path: Path) -> None:
    plant(tmp_path, {"a": b"", "src/x.py": b"", "src/sub/y.py": b"", "src/z.py": b"", "other/b": b""})
    assert _paths(tmp_path, "src/sub", "a", "./a") == [b"a", b"src", b"src/sub", b"src/sub/y.py"]
    assert _paths(tmp_path, str(tmp_path / "other")) == [b"other", b"other/b"]
    assert _paths(tmp_path, "./") == _paths(tmp_path)


def test_a_path_that_is_named_is_sent_even_if_ignored_and_below_it_the_rules_go_on(tmp_path: Path) -> None:
    plant(tmp_path, {".gitignore": b"data/\n*.tmp\n", "data/x": b"", "data/x.tmp": b"", "data/job_results/1": b""})
    assert _paths(tmp_path, "data") == [b"data", b"data/x"]
    assert _paths(tmp_path, "data/x.tmp", "data/job_results/1") == [
        b"data",
        b"data/job_results",
        b"data/job_results/1",
        b"data/x.tmp",
    ]


def test_an_absolute_path_is_understood_in_a_directory_reached_through_a_link(tmp_path: Path) -> None:
    plant(tmp_path, {"real/a": b"", "real/b": b"", "link": "real"})
    assert _paths(tmp_path / "link", str(tmp_path / "real" / "a")) == [b"a"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("/etc/passwd", "lies outside the working directory"),
        ("../x", "lies outside the working directory"),
        ("nothing", "'nothing' does not exist in"),
        ("", "the path is empty"),
        ("link/x", "leads through the link 'link'; name the real path"),
    ],
)
def test_a_path_that_cannot_be_sent_is_refused(tmp_path: Path, given: str, sentence: str) -> None:
    plant(tmp_path, {"d/x": b"", "link": "d"})
    with pytest.raises(UserError, match=sentence):
        scan(tmp_path, [given])


def test_too_large_a_tree_is_refused_with_the_way_out(tmp_path: Path) -> None:
    plant(tmp_path, {"data/big": b"", "a": b"x"})
    os.truncate(tmp_path / "data" / "big", 5 * 1024**3)
    with pytest.raises(UserError) as caught:
        scan(tmp_path)
    assert "holds more than 2 GiB" in str(caught.value)
    assert "(5 GiB of it in 'data')" in str(caught.value)
    assert ".yardignore" in str(caught.value)
    assert "--copy-forward" in str(caught.value)
    assert scan(tmp_path, limit_bytes=6 * 1024**3).size > 5 * 1024**3


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    plant(tmp_path, {f"d/{number}": b"" for number in range(10)})
    with pytest.raises(UserError, match=r"holds more than 8 files, too much to send \(9 of them in 'd'\)"):
        scan(tmp_path, limit_files=8)


def test_a_working_directory_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="gone' does not exist"):
        scan(tmp_path / "gone")


@contextmanager
def _as_nobody() -> Iterator[Path]:
    """A directory, and for root a while as somebody who may not read everything."""
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    directory.chmod(0o777)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        yield directory
    finally:
        os.seteuid(user)
        shutil.rmtree(directory)


@pytest.mark.parametrize("name", ["secret file", "secret directory", ".gitignore"])
def test_what_cannot_be_read_is_named(name: str) -> None:
    with _as_nobody() as directory:
        plant(directory, {"a": b"", name: None if "directory" in name else b""})
        (directory / name).chmod(0)
        try:
            with pytest.raises(UserError, match=f"{name}' cannot be read: Permission denied; make it readable"):
                snapshot(directory, directory / ".yard")
        finally:
            (directory / name).chmod(0o700)
