"""Placing files: how is a file put where another may be? Beside it: nothing is overwritten; safe to repeat."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO

_CHUNK = 1024 * 1024
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def put(wanted: bytes, suffix: bytes, write: Callable[[bytes], None]) -> bytes:
    """Write a file or link under a temporary name, then give it the first name that is free or has the same content.

    The names are `wanted`, then with `suffix` behind it, then numbered. Atomic. Returns the name.
    """
    directory = os.path.dirname(wanted)
    clear_part(directory, suffix)  # a part that an interrupted call left
    try:
        part = _part(directory, suffix)
        write(part)
        return move(part, wanted, suffix)
    finally:
        clear_part(directory, suffix)


def clear_part(directory: bytes, suffix: bytes) -> None:
    """Remove what a `put` that was killed left there. Safe to repeat."""
    with suppress(FileNotFoundError):
        os.unlink(_part(directory, suffix))


def _part(directory: bytes, suffix: bytes) -> bytes:
    return os.path.join(directory, b".yard-part" + suffix)


def move(path: bytes, wanted: bytes, suffix: bytes) -> bytes:
    """Give a file or link the first such name that is free or has the same content. Safe to repeat after a crash."""
    name = next(name for name in _names(wanted, suffix) if _claim(path, name) or _is_same(path, name))
    with suppress(FileNotFoundError):
        os.unlink(path)
    return name


def make_directory(wanted: bytes, suffix: bytes) -> tuple[bytes, bool]:
    """A real directory with the first such name that is not a file or link; and whether it is new."""
    for name in _names(wanted, suffix):
        try:
            os.mkdir(name)
            return name, True
        except FileExistsError:
            if stat.S_ISDIR(os.lstat(name).st_mode):
                return name, False
    raise AssertionError("names do not end")


def _names(wanted: bytes, suffix: bytes) -> Iterator[bytes]:
    yield wanted
    yield wanted + suffix
    number = 2
    while True:
        yield b"%s%s.%d" % (wanted, suffix, number)
        number += 1


def _claim(part: bytes, name: bytes) -> bool:
    """Whether the name was free, and now is that of the part."""
    try:
        os.link(part, name, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(name):
            return False
        os.rename(part, name)
    return True


def _is_same(part: bytes, name: bytes) -> bool:
    one, other = os.lstat(part), os.lstat(name)
    if stat.S_ISLNK(one.st_mode) and stat.S_ISLNK(other.st_mode):
        return os.readlink(part) == os.readlink(name)
    if not (stat.S_ISREG(one.st_mode) and stat.S_ISREG(other.st_mode)) or one.st_size != other.st_size:
        return False
    with open(part, "rb") as first, open(name, "rb") as second:
        return all(mine == theirs for mine, theirs in zip(_chunks(first), _chunks(second), strict=False))


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk
