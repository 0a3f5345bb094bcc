"""Tree snapshots: how does a tree of files that a job needs get here, whole or not at all?"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
import tarfile
from contextlib import suppress
from typing import IO, Any, List, Set, Tuple, cast

from jobyard.agent.system import processes

_CHUNK = 1 << 20
_BUFFER = 1 << 15  # tarfile moves what is left of it for every small read
_END_BYTES = 1024  # an archive ends with two empty blocks; one that was cut off does not


class BadArchive(Exception):
    """What came is no archive that we unpack; the sentence says why."""


def tree(state_dir: str, snapshot: str) -> str:
    return "%s/snapshots/%s/tree" % (state_dir, snapshot)


def is_here(state_dir: str, snapshot: str) -> bool:
    return os.path.isdir(tree(state_dir, snapshot))


def receive(state_dir: str, snapshot: str, stream: IO[bytes]) -> None:
    """Unpack a tar into a snapshot. Safe if two do it at once; one that is here already is left as it is.

    Raises BadArchive, or OSError when it cannot be written.
    """
    if is_here(state_dir, snapshot):
        return
    pid = os.getpid()
    parent = state_dir + "/snapshots"
    os.makedirs(parent, mode=0o700, exist_ok=True)
    _clear_abandoned(parent)
    draft = "%s/.%d-%d.%s" % (parent, pid, processes.start_time(pid), snapshot)
    try:
        os.makedirs(draft + "/tree", mode=0o700)
        unpack(stream, draft + "/tree")
        try:
            os.rename(draft, "%s/%s" % (parent, snapshot))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # somebody else was faster
                raise
    finally:
        remove_tree(draft)


def _clear_abandoned(parent: str) -> None:
    """Remove what a killed receiver left."""
    for name in os.listdir(parent):
        match = re.match(r"\.(\d+)-(\d+)\.", name)
        if match and not processes.is_alive(int(match[1]), int(match[2])):
            remove_tree(os.path.join(parent, name))


def remove_tree(path: str) -> None:
    """Remove a directory as far as that is possible, also out of directories that forbid it."""

    def permit(function: object, name: str, info: object) -> None:
        with suppress(OSError):
            os.chmod(os.path.dirname(name), 0o700)
            if not os.path.islink(name):
                os.chmod(name, 0o700)
            if os.path.isdir(name) and not os.path.islink(name):
                shutil.rmtree(name, ignore_errors=True)
            else:
                os.unlink(name)

    if os.path.lexists(path):
        shutil.rmtree(path, onerror=permit)
        with suppress(OSError):
            os.rmdir(path)


def unpack(stream: IO[bytes], target: str) -> None:
    """Unpack into an empty directory of ours, and nowhere else: files, directories and links within."""
    source = _Ended(stream)
    links: Set[str] = set()
    modes: List[Tuple[str, int, int]] = []
    try:
        with tarfile.open(
            fileobj=cast(Any, source),
            mode="r|",
            bufsize=_BUFFER,
            encoding=sys.getfilesystemencoding(),
            errors="surrogateescape",
        ) as archive:
            for member in archive:
                name = _confined(member.name, links)
                if name:
                    _unpack_one(archive, member, target, name, links, modes)
    except tarfile.TarError as error:
        raise BadArchive("not a whole tar archive: %s" % error) from error
    source.drain()
    # Last, and from the inside out: a directory may forbid writing, and writing changes its time.
    for path, mode, mtime_ns in reversed(modes):
        os.utime(path, ns=(mtime_ns, mtime_ns))
        os.chmod(path, mode)


def _confined(name: str, links: Set[str]) -> str:
    """The name without what means nothing; BadArchive if it leads, or could lead, out of the directory."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise BadArchive("the archive leads out of its directory: %r" % name)
    for depth in range(1, len(parts)):
        if "/".join(parts[:depth]) in links:
            raise BadArchive("the archive writes through a link: %r" % name)
    return "/".join(parts)


def _unpack_one(
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    target: str,
    name: str,
    links: Set[str],
    modes: List[Tuple[str, int, int]],
) -> None:
    path, mode, mtime_ns = os.path.join(target, name), member.mode & 0o777, int(member.mtime * 1_000_000_000)
    if member.isdir():
        if name in links:
            raise BadArchive("the archive writes through a link: %r" % name)
        os.makedirs(path, mode=0o700, exist_ok=True)
        modes.append((path, mode | stat.S_IRWXU, mtime_ns))
        return
    if os.path.lexists(path):
        os.unlink(path)  # named twice: the last one counts
        links.discard(name)
    elif not os.path.isdir(os.path.dirname(path)):
        os.makedirs(os.path.dirname(path), mode=0o755)
    if member.issym():
        os.symlink(member.linkname, path)
        os.utime(path, ns=(mtime_ns, mtime_ns), follow_symlinks=False)
        links.add(name)
    elif member.islnk():
        first = _confined(member.linkname, links)
        if first in links or not os.path.isfile(os.path.join(target, first)):
            raise BadArchive("the archive links %r to %r, which is no file in it" % (name, member.linkname))
        shutil.copy2(os.path.join(target, first), path)  # not a hard link: it would change with the first
    elif member.isfile():
        data = archive.extractfile(member)
        assert data is not None
        with open(path, "xb") as file:
            shutil.copyfileobj(data, file, _CHUNK)
            os.fchmod(file.fileno(), mode)
        os.utime(path, ns=(mtime_ns, mtime_ns))
    else:
        raise BadArchive("the archive has something that is neither file, directory nor link: %r" % name)


class _Ended:
    """A stream that knows whether it came to the end of an archive."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._tail = b""

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._tail = data[-_END_BYTES:] if len(data) >= _END_BYTES else (self._tail + data)[-_END_BYTES:]
        return data

    def drain(self) -> None:
        while self.read(_CHUNK):
            pass
        if self._tail != bytes(_END_BYTES):
            raise BadArchive("the archive was cut off")
