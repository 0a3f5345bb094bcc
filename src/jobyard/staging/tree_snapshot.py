"""Tree snapshot: how is a tree frozen at submit? As one archive under the hash of its content; stored once."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import NamedTemporaryFile

from jobyard.errors import Unwritable, UserError
from jobyard.staging.archive import tar_of
from jobyard.staging.known_files import KnownFiles
from jobyard.staging.tree import LIMIT_BYTES, LIMIT_FILES, Entry, EntryKind, Tree, scan, shown, unreadable

_CHUNK = 1024 * 1024
_HELD_BYTES = 64 * 1024**2  # so much of what was read for the hash stays in memory for the archive
KNOWN_SECONDS = 30 * 86400.0  # hashes of files stay so long after the last change in their tree
_TRIES = 3  # a tree that an editor or a build writes to settles soon, or not at all


@dataclass(frozen=True)
class TreeSnapshot:
    """A frozen tree. `archive` is a tar with paths relative to it, `listing` is its content (see `write_snapshot`)."""

    hash: str
    archive: Path
    listing: Path
    files: int
    size: int
    notes: tuple[str, ...] = ()
    is_new: bool = False


class TreeChanged(Exception):
    """A file is no longer what it was when we looked at it: scan it again."""


def snapshot(
    workdir: str | os.PathLike[str],
    yard: str | os.PathLike[str],
    copy_forward: Sequence[str] = (),
    *,
    limit_bytes: int = LIMIT_BYTES,
    limit_files: int = LIMIT_FILES,
) -> TreeSnapshot:
    """Freeze what `scan` finds in `workdir` in the yard's store. Edits after this change nothing. Raises UserError."""
    store = store_of(yard)
    for attempt in range(_TRIES):
        tree = scan(workdir, copy_forward, leave_out=[yard, store], limit_bytes=limit_bytes, limit_files=limit_files)
        with suppress(TreeChanged):
            return write_snapshot(tree, store, believe_known=attempt == 0)
    raise UserError(
        f"{shown(tree.root)} changes while it is read; submit again when nothing writes there, "
        "or add what is written to .yardignore"
    )


def store_of(yard: str | os.PathLike[str]) -> Path:
    return Path(yard) / "snapshots"


def write_snapshot(tree: Tree, store: Path, *, believe_known: bool = True) -> TreeSnapshot:
    """The tree's snapshot in `store`, written unless it is there. An archive that has its name is complete and on disk.

    The hash is the SHA-256 of the listing: for each entry, sorted by path, `KIND MODE DIGEST PATH` and a NUL.
    Raises TreeChanged, UserError.
    """
    # 1. What is in it? Files that did not change since the last time are not read.
    known = KnownFiles(store, tree.root)
    reader = _Reader(tree.root)
    for entry in tree.entries:
        reader.digests[entry.path] = (believe_known and known.digest_of(entry)) or reader.digest(entry)
    listing = b"".join(_line(entry, reader.digests[entry.path]) for entry in tree.entries)
    name = hashlib.sha256(listing).hexdigest()
    found = TreeSnapshot(name, store / f"{name}.tar", store / f"{name}.list", len(tree.entries), tree.size, tree.notes)
    try:
        # 2. Is it there already? Then touch it, so that it is not pruned before its job is known.
        with suppress(FileNotFoundError):
            os.utime(found.archive)
            return found
        # 3. Write it; a file that changed since it was hashed aborts that. The archive comes last: it marks success.
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        publish(found.listing, [listing])
        publish(found.archive, tar_of(tree.entries, reader.checked))
        return replace(found, is_new=True)
    except OSError as error:
        raise Unwritable(f"the snapshot of {shown(tree.root)} cannot be kept in {store}: {error.strerror}") from None
    finally:
        known.remember(tree, reader.digests)


def prune(store: Path, keep: Collection[str], *, idle_seconds: float = 3600.0) -> list[str]:
    """Delete snapshots that are not in `keep` and were not asked for in the last `idle_seconds`; answers their hashes.

    The delay protects a submit whose snapshot is written while its job is not known yet.
    """
    oldest = time.time() - idle_seconds
    removed = list[str]()
    for archive in store.glob("*.tar"):
        if archive.stem not in keep and _is_older(archive, oldest):
            archive.unlink(missing_ok=True)
            removed.append(archive.stem)
    beside = [path for path in (*store.glob("*.list"), *store.glob("*.part")) if not path.with_suffix(".tar").exists()]
    unused = [path for path in beside if _is_older(path, oldest)]
    for path in [*unused, *(path for path in store.glob("known/*") if _is_older(path, time.time() - KNOWN_SECONDS))]:
        path.unlink(missing_ok=True)
    return sorted(removed)


def _is_older(path: Path, oldest: float) -> bool:
    try:
        return path.stat().st_mtime <= oldest
    except FileNotFoundError:
        return False


@dataclass
class _Reader:
    """Reads the files of a tree, and holds what fits, so that a small tree is read once."""

    root: bytes
    digests: dict[bytes, str] = field(default_factory=dict)
    held: dict[bytes, bytes] = field(default_factory=dict)
    room: int = _HELD_BYTES

    def digest(self, entry: Entry) -> str:
        if entry.kind is not EntryKind.FILE:
            return hashlib.sha256(entry.target).hexdigest()
        if entry.size > min(self.room, _CHUNK):
            return _digest_of(self._read(entry))
        content = b"".join(self._read(entry))
        self.held[entry.path] = content
        self.room -= len(content)
        return hashlib.sha256(content).hexdigest()

    def checked(self, entry: Entry) -> Iterator[bytes]:
        """The file's content; at its end, TreeChanged if it is not the content that has our digest."""
        if entry.path in self.held:
            yield self.held[entry.path]
            return
        digest = hashlib.sha256()
        for chunk in self._read(entry):
            digest.update(chunk)
            yield chunk
        if digest.hexdigest() != self.digests[entry.path]:
            raise TreeChanged

    def _read(self, entry: Entry) -> Iterator[bytes]:
        """Exactly `entry.size` bytes, or TreeChanged."""
        try:
            # No link and no pipe: something else may have taken the file's place.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(os.path.join(self.root, entry.path), flags)
        except PermissionError as error:
            raise unreadable(entry.path, error) from None
        except OSError:
            raise TreeChanged from None
        left = entry.size
        try:
            while chunk := os.read(descriptor, min(left, _CHUNK) + 1):
                left -= len(chunk)
                if left < 0:
                    raise TreeChanged
                yield chunk
        except OSError as error:
            raise unreadable(entry.path, error) from None
        finally:
            os.close(descriptor)
        if left:
            raise TreeChanged


def _digest_of(chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _line(entry: Entry, digest: str) -> bytes:
    return b"%s %03o %s %s\0" % (entry.kind.value, entry.mode, digest.encode(), entry.path)


def publish(path: Path, chunks: Iterable[bytes]) -> None:
    """All of it under its name, and on disk, or nothing."""
    with NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", suffix=".part", delete=False) as file:
        try:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
