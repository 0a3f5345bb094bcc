"""Trees of files: how is one copied, and what is different in the copy later on?"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from typing import Dict, Iterator, NamedTuple, Optional

_FICLONE = 0x40049409
_SMALL_BYTES = 1 << 16
_MOST_AT_ONCE = 1 << 30
_cannot_clone: Dict[int, bool] = {}  # device -> asked once, and it cannot


class Difference(NamedTuple):
    """One path, as it was and as it is; None where there is nothing."""

    name: str
    before: Optional[os.stat_result]
    after: Optional[os.stat_result]
    is_changed: bool  # False: touched, but otherwise the same


def copy_tree(source: str, target: str) -> None:
    """A copy that shares nothing with its source but, where the file system can, blocks until they are written to.

    Links stay links; modes and times are kept. Raises OSError, with part of the copy left behind.
    """
    os.mkdir(target, 0o700)
    with os.scandir(source) as entries:
        for entry in entries:
            copy_entry(entry.path, target + "/" + entry.name, entry.stat(follow_symlinks=False))
    _keep(target, os.lstat(source))


def copy_entry(source: str, target: str, found: os.stat_result) -> None:
    """Copy one file, link or directory with all in it; pipes, sockets and devices are left out."""
    if stat.S_ISDIR(found.st_mode):
        copy_tree(source, target)
    elif stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(source), target)
        os.utime(target, ns=(found.st_mtime_ns, found.st_mtime_ns), follow_symlinks=False)
    elif stat.S_ISREG(found.st_mode):
        _copy_file(source, target, found)


def _keep(path: str, found: os.stat_result) -> None:
    os.chmod(path, stat.S_IMODE(found.st_mode))
    os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))


def _copy_file(source: str, target: str, found: os.stat_result) -> None:
    reader = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if found.st_size:
                _copy_bytes(reader, writer, found)
            os.fchmod(writer, stat.S_IMODE(found.st_mode))
            os.utime(writer, ns=(found.st_mtime_ns, found.st_mtime_ns))
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _copy_bytes(reader: int, writer: int, found: os.stat_result) -> None:
    if found.st_dev not in _cannot_clone:
        try:
            fcntl.ioctl(writer, _FICLONE, reader)
            return
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            _cannot_clone[found.st_dev] = True
    if found.st_size <= _SMALL_BYTES:
        data = os.read(reader, found.st_size)
        while data:
            data = data[os.write(writer, data) :]
        return
    while os.sendfile(writer, reader, None, _MOST_AT_ONCE):
        pass


def differences(before: str, after: str, made_ns: int = 0) -> Iterator[Difference]:
    """What differs between a tree and a copy of it, in the order of names, a directory before what is in it.

    A path counts as changed if its kind, size, time, mode or link target is another one; directories only if they are
    new or gone. With `made_ns`, what was touched after that moment is named too. Never follows a link;
    what vanishes or cannot be read in the copy is left out. Raises OSError if the tree itself cannot be read.
    """
    yield from _differences(before, after, "", made_ns)


def _differences(before: str, after: str, prefix: str, made_ns: int) -> Iterator[Difference]:
    old, new = _listing(before) if before else {}, _readable_listing(after)
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        relative = prefix + name
        both_directories = was is not None and now is not None and _kind(was) == _kind(now) == stat.S_IFDIR
        if both_directories:
            assert was is not None
            assert now is not None
            if made_ns and (now.st_mtime_ns, now.st_mode) != (was.st_mtime_ns, was.st_mode):
                yield Difference(relative, was, now, False)
        elif was is None or now is None or _is_other(was, now, before + "/" + name, after + "/" + name):
            yield Difference(relative, was, now, True)
        elif made_ns and now.st_ctime_ns > made_ns:
            yield Difference(relative, was, now, False)
        if now is not None and _kind(now) == stat.S_IFDIR:
            inner = before + "/" + name if both_directories else ""
            yield from _differences(inner, after + "/" + name, relative + "/", made_ns)


def _kind(found: os.stat_result) -> int:
    return stat.S_IFMT(found.st_mode)


def _is_other(was: os.stat_result, now: os.stat_result, before: str, after: str) -> bool:
    if was.st_mode != now.st_mode:
        return True
    if _kind(now) == stat.S_IFLNK:
        try:
            return os.readlink(before) != os.readlink(after)
        except OSError:
            return True
    return (was.st_size, was.st_mtime_ns) != (now.st_size, now.st_mtime_ns)


def _readable_listing(directory: str) -> Dict[str, os.stat_result]:
    try:
        return _listing(directory)
    except OSError:  # the task has removed it, or made it unreadable
        return {}


def _listing(directory: str) -> Dict[str, os.stat_result]:
    found: Dict[str, os.stat_result] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                found[entry.name] = entry.stat(follow_symlinks=False)
    return found
