"""A tree, frozen at submit."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobyard.agent.files import snapshots
from jobyard.errors import Unwritable, UserError
from jobyard.staging import known_files, tree_snapshot
from jobyard.staging.archive import header_of
from jobyard.staging.results import unpack_results
from jobyard.staging.tree import Entry, EntryKind
from jobyard.staging.tree_snapshot import prune, snapshot, store_of
from tests.unit.staging.trees import plant, seen

LONG = "d" * 90 + "/" + "f" * 90


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = plant(
        tmp_path / "tree",
        {
            "run.sh": b"#!/bin/sh\n",
            "a b/c\nd.txt": b"x" * 70000,
            b"\xff\xfe": b"not text",
            "grün/größe": b"",
            "empty/er": None,
            LONG: b"long",
            "link": "a b/c\nd.txt",
            "dangling": "../" * 60 + "nowhere",
        },
    )
    (root / "run.sh").chmod(0o755)
    (root / "empty").chmod(0o750)
    (root / "grün" / "größe").chmod(0o600)
    return root


@pytest.fixture
def yard(tmp_path: Path) -> Path:
    return tmp_path / "yard"


def test_a_packed_tree_unpacks_to_the_same(tree: Path, yard: Path, tmp_path: Path) -> None:
    (tree / "dangling").unlink()  # leads outside, which results may not
    os.utime(tree / "run.sh", (1_000_000_000, 1_000_000_000))
    unpack_results(snapshot(tree, yard).archive, tmp_path / "copy")
    assert seen(tmp_path / "copy") == seen(tree)
    assert (tmp_path / "copy" / "run.sh").stat().st_mtime == 1_000_000_000


def test_an_agent_unpacks_it_to_the_same(tree: Path, yard: Path, tmp_path: Path) -> None:
    with snapshot(tree, yard).archive.open("rb") as archive:
        snapshots.receive(str(tmp_path / "state"), "0" * 64, archive)
    assert seen(Path(snapshots.tree(str(tmp_path / "state"), "0" * 64))) == seen(tree)


names = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60).filter(
    lambda name: (
        name not in (".", "..", ".git", "job_results", ".gitignore", ".yardignore") and len(name.encode()) < 250
    )
)
files = st.dictionaries(st.lists(names, min_size=1, max_size=3).map("/".join), st.binary(max_size=2000), max_size=8)


@settings(max_examples=60, deadline=None)
@given(files=files, mode=st.integers(0o400, 0o777))
def test_whatever_is_in_it(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], mode: int) -> None:
    directory = tmp_path_factory.mktemp("any")
    root = plant(directory / "tree", {})
    for name, content in files.items():
        try:
            plant(root, {name: content})
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue  # a file and a directory of one name
        (root / name).chmod(mode | 0o400)
    unpack_results(snapshot(root, directory / "yard").archive, directory / "copy")
    assert seen(directory / "copy") == seen(root)


def test_the_archive_is_read_by_everybody_and_belongs_to_nobody(tree: Path, yard: Path) -> None:
    with tarfile.open(snapshot(tree, yard).archive) as archive:
        members = archive.getmembers()
    assert [os.fsencode(member.name) for member in members] == sorted(seen(tree))
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}


@pytest.mark.parametrize("length", [1, 99, 100, 101, 300])
@pytest.mark.parametrize("kind", list(EntryKind))
@pytest.mark.parametrize("size", [0, 8**11 - 1, 8**11])
def test_a_header_is_what_tarfile_writes(kind: EntryKind, length: int, size: int) -> None:
    target = b"t" * length if kind is EntryKind.LINK else b""
    entry = Entry(b"n" * length, kind, 0o644, size, 1_700_000_000_999_999_999, target=target)
    info = tarfile.TarInfo("n" * length)
    info.type = {
        EntryKind.FILE: tarfile.REGTYPE,
        EntryKind.DIRECTORY: tarfile.DIRTYPE,
        EntryKind.LINK: tarfile.SYMTYPE,
    }[kind]
    info.mode, info.size, info.mtime, info.linkname = 0o644, size, 1_700_000_000, target.decode()
    assert header_of(entry) == info.tobuf(tarfile.GNU_FORMAT)


def test_the_same_tree_is_stored_once(tree: Path, yard: Path) -> None:
    first = snapshot(tree, yard)
    written = first.archive.stat().st_ino
    again = snapshot(tree, yard)
    assert (first.is_new, again.is_new, again.hash) == (True, False, first.hash)
    assert again.archive.stat().st_ino == written
    assert len(list(store_of(yard).glob("*.tar"))) == 1


def test_the_hash_is_that_of_the_listing(tree: Path, yard: Path) -> None:
    found = snapshot(tree, yard)
    assert hashlib.sha256(found.listing.read_bytes()).hexdigest() == found.hash
    assert found.listing.read_bytes().count(b"\0") == found.files == len(seen(tree))


def test_times_and_places_do_not_change_the_hash(tmp_path: Path, yard: Path) -> None:
    here, there = (plant(tmp_path / name, {"a": b"1", "d/b": b"2"}) for name in ("here", "there"))
    os.utime(there / "a", (1, 1))
    assert snapshot(here, yard).hash == snapshot(there, yard).hash


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "a").write_bytes(b"2"),
        lambda root: (root / "a").chmod(0o700),
        lambda root: (root / "a").rename(root / "b"),
        lambda root: (root / "new").mkdir(),
        lambda root: ((root / "link").unlink(), (root / "link").symlink_to("b")),
        lambda root: ((root / "a").unlink(), (root / "a").mkdir()),
    ],
)
def test_any_other_change_does(tmp_path: Path, yard: Path, change: object) -> None:
    root = plant(tmp_path / "tree", {"a": b"1", "link": "a"})
    before = snapshot(root, yard).hash
    assert callable(change)
    change(root)
    assert snapshot(root, yard).hash != before


def test_edits_after_the_submit_change_nothing(tree: Path, yard: Path, tmp_path: Path) -> None:
    frozen = snapshot(tree, yard)
    (tree / "run.sh").write_bytes(b"something else")
    unpack_results(frozen.archive, tmp_path / "copy")
    assert (tmp_path / "copy" / "run.sh").read_bytes() == b"#!/bin/sh\n"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The paths of files that are read."""
    read: list[bytes] = []
    original = tree_snapshot._Reader._read

    def noting(self: tree_snapshot._Reader, entry: Entry) -> Iterator[bytes]:
        read.append(entry.path)
        return original(self, entry)

    monkeypatch.setattr(tree_snapshot._Reader, "_read", noting)
    return read


@pytest.fixture
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system with so good a clock that all of its files are old."""
    monkeypatch.setattr(known_files, "_TICK_NS", -(10**9))


@pytest.mark.usefixtures("quick_ticks")
def test_files_that_did_not_change_are_not_read_again(tmp_path: Path, yard: Path, reads: list[bytes]) -> None:
    root = plant(tmp_path / "tree", {"a": b"1", "b": b"2", "link": "a"})
    snapshot(root, yard)
    assert sorted(reads) == [b"a", b"b"]  # once, for hash and archive together
    reads.clear()
    snapshot(root, yard)
    assert reads == []
    (root / "a").write_bytes(b"3")
    snapshot(root, yard)
    assert sorted(set(reads)) == [b"a", b"b"]  # a new archive needs all of them


def test_a_file_that_changed_just_now_is_not_believed(tmp_path: Path, yard: Path) -> None:
    root = plant(tmp_path / "tree", {"a": b"1"})
    hashes = set()
    for number in range(50):  # as fast as the clock ticks, with the size and time that it had
        (root / "a").write_bytes(b"%02d" % number)
        os.utime(root / "a", (1, 1))
        hashes.add(snapshot(root, yard).hash)
    assert len(hashes) == 50


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"form":0}', b"\xff"])
@pytest.mark.usefixtures("quick_ticks")
def test_a_broken_cache_is_made_anew(tree: Path, yard: Path, content: bytes) -> None:
    before = snapshot(tree, yard).hash
    (known,) = store_of(yard).glob("known/*")
    known.write_bytes(content)
    assert snapshot(tree, yard).hash == before


@pytest.mark.parametrize("size", [10, 5_000_000])
def test_a_file_that_changes_while_it_is_read_is_read_again(
    tmp_path: Path, yard: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = plant(tmp_path / "tree", {"a": b"x" * size})
    original = tree_snapshot._Reader.digest
    changes = iter([b"y" * (size - 1), b"z" * size])

    def changing(self: tree_snapshot._Reader, entry: Entry) -> str:
        (root / "a").write_bytes(next(changes, b"z" * size))
        return original(self, entry)

    monkeypatch.setattr(tree_snapshot._Reader, "digest", changing)
    unpack_results(snapshot(root, yard).archive, tmp_path / "copy")
    assert (tmp_path / "copy" / "a").read_bytes() == b"z" * size


def test_a_tree_that_never_settles_is_one_sentence(tmp_path: Path, yard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = plant(tmp_path / "tree", {"a": b""})
    original = tree_snapshot._Reader.digest

    def growing(self: tree_snapshot._Reader, entry: Entry) -> str:
        with (root / "a").open("ab") as file:
            file.write(b"more")
        return original(self, entry)

    monkeypatch.setattr(tree_snapshot._Reader, "digest", growing)
    with pytest.raises(UserError, match="changes while it is read; submit again"):
        snapshot(root, yard)
    assert not list(store_of(yard).glob("*.tar"))


def test_a_full_disk_is_one_sentence_and_leaves_nothing_behind(
    tree: Path, yard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unwritable, match=r"cannot be kept in .*: No space left on device"):
        snapshot(tree, yard)
    assert list(store_of(yard).iterdir()) == []


def test_prune_keeps_what_is_named_and_what_is_fresh(tmp_path: Path, yard: Path) -> None:
    made = {
        name: snapshot(plant(tmp_path / name, {"a": name.encode()}), yard) for name in ("kept", "old", "fresh", "used")
    }
    store = store_of(yard)
    (store / "x.part").touch()
    for path in [*store.glob("*.*"), *store.glob("known/*")]:
        if made["fresh"].hash not in path.name:
            os.utime(path, (1, 1))
    snapshot(tmp_path / "used", yard)  # asked for again a moment ago
    assert prune(store, {made["kept"].hash}) == [made["old"].hash]
    left = {made[name].hash for name in ("kept", "fresh", "used")}
    assert {path.stem for path in store.glob("*.*")} == left
    assert {path.stem for path in store.glob("*.list")} == left
    assert prune(store, set(), idle_seconds=-60) == sorted(left)
    assert prune(tmp_path / "no store", set()) == []
