"""Packing: how do the files of attempts get into a pack, so that a kill or a power cut at any moment loses nothing?

First the pack is on the disk, then the files go, the record last: who finds a record without its other files looks
into the pack.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from jobyard.agent_protocol import faults
from jobyard.agent_protocol.pack_blocks import Files, Key, encoded, in_blocks, scan
from jobyard.agent_protocol.packs import NAME

SMALL_BYTES = 1 << 16  # a larger file stays what it is
_BLOCK_BYTES = 1 << 20
KINDS = ("out", "err", "error", "spool", "stop", "rec")


class _Taken(NamedTuple):
    path: str
    size: int


def pack(
    job_directory: str, attempts: Iterable[Key], kinds: Sequence[str] = KINDS, *, keep_directories: bool = False
) -> None:
    """Pack what is small of these attempts, which have ended. What is not there, or too large, is left out.

    `keep_directories`: they stay where nothing is left in them; see `remove_empty`.

    Raises OSError; then every file is still there. Somebody else who packs the same job: nothing happens.
    """
    # In order, so that few blocks have to be looked into for a task.
    keys = sorted(attempts)
    there = {bucket: _names("%s/%d" % (job_directory, bucket)) for bucket in {task // 1000 for task, _ in keys}}
    found = [(key, *_read(job_directory, key, kinds, there[key[0] // 1000])) for key in keys]
    found = [each for each in found if each[1]]
    if not found:
        return
    descriptor = os.open(
        os.path.join(job_directory, NAME), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        _append(descriptor, [(key, files) for key, files, _ in found])
    finally:
        os.close(descriptor)
    _sync_directory(job_directory)
    faults.point("packed")
    for _, _, taken in found:
        _remove(taken)
    if not keep_directories:
        remove_empty(directories(job_directory, [key for key, _, _ in found]))


def directories(job_directory: str, attempts: Iterable[Key]) -> Set[str]:
    """Where the files of these attempts lay."""
    return {"%s/%d" % (job_directory, task // 1000) for task, _ in attempts}


def remove_empty(paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(OSError):  # others are in it
            os.rmdir(path)


def _append(descriptor: int, attempts: List[Tuple[Key, Files]]) -> None:
    """Behind the last whole block. What a packer that was killed left half written goes: its files are still there."""
    _, end = scan(descriptor, 0)
    os.ftruncate(descriptor, end)
    try:
        for piece in in_blocks(attempts, _BLOCK_BYTES):
            data = encoded(piece)
            faults.point("packing")
            written = os.pwrite(descriptor, data, end)
            if written != len(data):
                raise OSError("the pack could not be written whole")
            end += written
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, end)
        raise


def _names(directory: str) -> Set[str]:
    """One listing for all attempts: most of them have few of the files that there may be."""
    try:
        return set(os.listdir(directory))
    except OSError:
        return set()


def _read(job_directory: str, key: Key, kinds: Sequence[str], there: Set[str]) -> "Tuple[Files, List[_Taken]]":
    task, number = key
    name = "%d.%d." % (task, number)
    stem = "%s/%d/%s" % (job_directory, task // 1000, name)
    files: Dict[str, bytes] = {}
    taken: List[_Taken] = []
    for kind in kinds:
        content = _small(stem + kind) if name + kind in there else None
        if content is not None:
            files[kind] = content
            taken.append(_Taken(stem + kind, len(content)))
    return files, taken


def _small(path: str) -> Optional[bytes]:
    """What is in it; None for what is not there, no plain file or not small. An empty one is not opened."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > SMALL_BYTES:
            return None
        if not found.st_size:
            return b""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        content = os.read(descriptor, SMALL_BYTES + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return content if len(content) <= SMALL_BYTES else None


def _remove(taken: List[_Taken]) -> None:
    """In this order. What has grown meanwhile stays, and counts more than what was packed of it."""
    for path, size in taken:
        with suppress(OSError):
            if os.lstat(path).st_size == size:
                os.unlink(path)


def _sync_directory(path: str) -> None:
    with suppress(OSError):  # some file systems do not
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
