"""Packs: where are the small files of attempts that have ended, once they have no files of their own any more?

Each job has one pack in its directory, see `pack_blocks`. A file that is there counts more than what was packed of it.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections import OrderedDict
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from jobyard.agent_protocol import records
from jobyard.agent_protocol.pack_blocks import Block, DamagedBlock, Files, Key, decoded, header_at, scan
from jobyard.agent_protocol.records import Paths

NAME = "pack"
_FILE = re.compile(r"([0-9]{1,15})\.([0-9]{1,9})\.([a-z]+)")
_PACKS_MOST = 64  # whose lists of blocks are kept in memory
_NOT_THERE = (FileNotFoundError, NotADirectoryError)
_BLOCKS_MOST = 4  # whose contents are: a few megabytes each


class DamagedPack(Exception):
    """What was packed of an attempt cannot be read any more; the message is a sentence for people."""


class _Known(NamedTuple):
    inode: Tuple[int, int]
    blocks: List[Block]
    end: int
    last: int  # no later task was packed: of an array the next ones are looked for all the time


class Packs:
    """Reads packs. Remembers where their blocks begin, and the contents of the last few. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: "OrderedDict[str, _Known]" = OrderedDict()
        self._contents: "OrderedDict[Tuple[str, Tuple[int, int], int], Dict[Key, Files]]" = OrderedDict()

    def content(self, path: str) -> Optional[bytes]:
        """What was packed of the file at this path; None: nothing. Raises DamagedPack, or OSError."""
        job, key, kind = _parts(path)
        if key is None:
            return None
        found = self.find(job, key)
        if not found:
            self._refuse_torn(os.path.join(job, NAME), key)
        return found.get(kind)

    def _refuse_torn(self, path: str, key: Key) -> None:
        """Raises DamagedPack where the last block is cut off, and this attempt may have been in it.

        While a packer writes, and after it was killed, its attempts still have their files: nobody asks here.
        """
        try:
            descriptor = _opened(path)
        except _NOT_THERE:
            return
        try:
            with self._lock:
                torn = header_at(descriptor, self._look(path, descriptor).end)
            if torn is not None and torn.first <= key[0] <= torn.last and not _is_being_packed(descriptor):
                raise DamagedPack(_sentence(path, torn))
        finally:
            os.close(descriptor)

    def find(self, job_directory: str, key: Key) -> Files:
        """All that was packed of an attempt. Raises DamagedPack where a part that may be its own cannot be read, and
        OSError where nobody can tell now: whoever takes that for nothing lets a task run a second time.
        """
        path = os.path.join(job_directory, NAME)
        try:
            descriptor = _opened(path)
        except _NOT_THERE:
            return {}
        found: Files = {}
        try:
            with self._lock:
                known = self._look(path, descriptor)
                damaged = None
                for block in reversed(known.blocks) if key[0] <= known.last else ():  # what was packed last counts
                    if not block.first <= key[0] <= block.last:
                        continue
                    try:
                        files = self._read(path, known.inode, descriptor, block).get(key, {})
                    except DamagedBlock:
                        damaged = block
                        continue
                    found = {**files, **found}
                if damaged is not None and "rec" not in found and "out" not in found:
                    raise DamagedPack(_sentence(path, damaged))
                return found
        finally:
            os.close(descriptor)

    def attempts(self, job_directory: str) -> Iterator[Key]:
        """All attempts of which anything was packed; damaged parts are left out. Raises OSError."""
        for _, files in self._all(job_directory):
            yield from files or ()

    def tasks(self, job_directory: str) -> Iterator[int]:
        """All tasks of which anything was packed, or may have been in a damaged part whose header can be read.

        Raises OSError.
        """
        for block, files in self._all(job_directory):
            if files is not None:
                yield from (task for task, _ in files)
            elif block.is_readable:
                yield from range(block.first, block.last + 1)

    def _all(self, job_directory: str) -> "Iterator[Tuple[Block, Optional[Dict[Key, Files]]]]":
        """None: what is in the block is damaged."""
        try:
            descriptor = _opened(os.path.join(job_directory, NAME))
        except _NOT_THERE:
            return
        try:
            blocks, _ = scan(descriptor, 0)
            for block in blocks:
                try:
                    files = decoded(os.pread(descriptor, block.length, block.offset), block)
                except DamagedBlock:
                    yield block, None
                else:
                    yield block, files
        finally:
            os.close(descriptor)

    def _look(self, path: str, descriptor: int) -> _Known:
        status = os.fstat(descriptor)
        inode = (status.st_dev, status.st_ino)
        known = self._known.pop(path, None)
        if known is None or known.inode != inode or known.end > status.st_size:
            known = _Known(inode, [], 0, -1)
        if known.end < status.st_size:
            more, end = scan(descriptor, known.end)
            known = _Known(inode, known.blocks + more, end, max([known.last, *(block.last for block in more)]))
        self._known[path] = known
        while len(self._known) > _PACKS_MOST:
            self._known.popitem(last=False)
        return known

    def _read(self, path: str, inode: Tuple[int, int], descriptor: int, block: Block) -> Dict[Key, Files]:
        name = (path, inode, block.offset)
        files = self._contents.pop(name, None)
        if files is None:
            files = decoded(os.pread(descriptor, block.length, block.offset), block)
        self._contents[name] = files
        while len(self._contents) > _BLOCKS_MOST:
            self._contents.popitem(last=False)
        return files


PACKS = Packs()


def _opened(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_being_packed(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def is_there(path: str) -> bool:
    """Whether this file of an attempt can be had: as a file, or packed. Also where that cannot be told."""
    try:
        return os.path.lexists(path) or PACKS.content(path) is not None
    except (DamagedPack, OSError):
        return True  # whoever reads it is told


def restore(state_dir: str, job: str, key: Key, files: Paths) -> bool:
    """Put the packed files of an attempt where they lay, unless its record is there; the record last.

    False: nothing was packed of it. Raises OSError, or DamagedPack.
    """
    if records.is_there(files.record):
        return True
    found = PACKS.find("%s/jobs/%s" % (state_dir, job), key)
    if "rec" not in found:
        return False
    os.makedirs(files.directory, mode=0o700, exist_ok=True)
    stem = files.record[: -len("rec")]
    for kind in sorted(found, key=lambda kind: kind == "rec"):
        if not os.path.lexists(stem + kind):
            write_whole(stem + kind, found[kind])
    return True


def end_lost(files: Paths, now: float, sentence: str) -> None:
    """Write down that an attempt has ended whose record may be lost. The sentence says why nobody knows how it did.

    Raises OSError.
    """
    os.makedirs(files.directory, mode=0o700, exist_ok=True)
    write_whole(files.error, sentence.encode("utf-8", "backslashreplace") + b"\n")
    write_whole(files.record, b"end " + records.end_words(records.Ending(now, None, None, "Unknown")) + b"\n")


def write_whole(path: str, content: bytes) -> None:
    """Whoever finds the file finds all of it. Raises OSError."""
    draft = "%s.%d" % (path, os.getpid())
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.rename(draft, path)


def _parts(path: str) -> "Tuple[str, Optional[Key], str]":
    """The directory of the job, the attempt and the kind of a file's path."""
    bucket, name = os.path.split(path)
    match = _FILE.fullmatch(name)
    job = os.path.dirname(bucket)
    return (job, (int(match[1]), int(match[2])), match[3]) if match else (job, None, "")


def _sentence(path: str, block: Block) -> str:
    whose = "tasks %d to %d" % (block.first, block.last) if block.is_readable else "some tasks"
    return "the packed output of %s is damaged (%s, at byte %d); run them again with `yard retry`" % (
        whose,
        path,
        block.offset,
    )


def packed_tasks(job_directory: str) -> Set[int]:
    return set(PACKS.tasks(job_directory))
