"""Call folder: where in a working directory do call files stand, and who but this user can change them? Nobody.

Others may write to the working directory itself, as in /tmp or a group's project: they can put a folder, a link or a
pipe there at any moment. So the folder is opened once, looked at, and everything in it is reached from there.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from jobyard.errors import UserError

FOLDER = ".jobyard"
_IGNORE = b"# Functions that jobyard sends to tasks.\n*\n"
_IGNORED = ".gitignore"
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would be waited for without an end
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@contextmanager
def made(workdir: Path) -> Iterator[int]:
    """The folder, opened; it is made where it is missing. Raises UserError where others could change what is in it."""
    folder = workdir / FOLDER
    with suppress(FileExistsError):
        folder.mkdir(mode=0o755)  # readable, as far as the umask lets: with `serve --run-as` tasks are another user's
    with opened(folder) as descriptor:
        with suppress(FileExistsError), new_file(descriptor, _IGNORED) as file:
            file.write(_IGNORE)
        yield descriptor


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, _OPEN_FOLDER)
    try:
        _check_own(os.fstat(descriptor), folder)
        yield descriptor
    finally:
        os.close(descriptor)


def new_file(folder: int, name: str) -> BinaryIO:
    """Raises FileExistsError where anything has this name, also a link to nothing."""
    return os.fdopen(os.open(name, _NEW, 0o644, dir_fd=folder), "w+b")


def existing_file(path: str | Path, folder: int | None = None) -> BinaryIO:
    """Raises OSError where it is anything but a plain file."""
    descriptor = os.open(path, _READ, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path}: it is no plain file")
    return os.fdopen(descriptor, "rb")


def _check_own(found: os.stat_result, folder: Path) -> None:
    if found.st_uid != os.geteuid():
        raise UserError(
            f"{folder}: it belongs to {_user(found.st_uid)}, who could run other code in place of the function; "
            "remove it, or name another directory with workdir="
        )
    if found.st_mode & _OTHERS_WRITE:
        raise UserError(
            f"{folder}: others may write to it, and could run other code in place of the function; "
            f"run `chmod go-w {FOLDER}` there, or name another directory with workdir="
        )


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name!r}"
    except KeyError:
        return f"user {uid}"
