"""Output writing: how does what a task wrote get into the file that its submitter named, and into no other one?

The directory may belong to another user, as with `--run-as` or a shared disk, who may put links there at any moment. So
each directory is opened from the one before, and a link leads on only where root or the server's own user made it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from jobyard.server.logs import open_log

LINKS_MOST = 40  # on the way to one file, as in the kernel
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def write_output(sources: Sequence[Path], target: Path) -> None:
    """Write the logs, one after another. The file appears whole, in the place of one that is there.

    Raises OSError for what cannot be written, also for what is there and is no file, such as a named pipe.
    """
    with _place(target) as (directory, name):
        draft, descriptor = _draft(directory, name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for source in sources:
                    with suppress(FileNotFoundError), open_log(source) as written:
                        shutil.copyfileobj(written, file, 1 << 20)
            os.replace(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
        finally:
            with suppress(OSError):
                os.unlink(draft, dir_fd=directory)


def _draft(directory: int, name: str) -> tuple[str, int]:
    """A new file and its name: the one of last time, which a server that was killed has left, or where somebody keeps
    that from us one that nobody can guess."""
    usual = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    try:
        return _new(directory, usual)
    except OSError:
        return _new(directory, secrets.token_hex(8))


def _new(directory: int, word: str) -> tuple[str, int]:
    draft = f".yard-{word}.part"
    with suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=directory)
    return draft, os.open(draft, _NEW, 0o666, dir_fd=directory)


class _Found(NamedTuple):
    kind: int
    leads_to: str  # of a link


@contextmanager
def _place(target: Path) -> Iterator[tuple[int, str]]:
    """The open directory and the name in it, with all links followed. Directories that are missing are made."""
    parts = list(reversed(target.parts[1:]))
    links, here = 0, os.open("/", _LOOK | os.O_DIRECTORY)
    try:
        while True:
            name = parts.pop()
            found = _look(here, name, target)
            if found is not None and stat.S_ISLNK(found.kind):
                links += 1
                if links > LINKS_MOST:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(target))
                way = Path(found.leads_to)
                parts += reversed(way.parts[1:] if way.is_absolute() else way.parts)
                here = _step(here, "/") if way.is_absolute() else here
            elif not parts:
                if found is not None and not stat.S_ISREG(found.kind):
                    raise FileExistsError(errno.EEXIST, "it is there and is no file", str(target))
                yield here, name
                return
            else:
                if found is None:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=here)
                here = _step(here, name)
    finally:
        os.close(here)


def _step(here: int, name: str) -> int:
    """Into a directory. Raises OSError where it is none by now."""
    there = os.open(name, _LOOK | os.O_DIRECTORY, dir_fd=here)
    os.close(here)
    return there


def _look(here: int, name: str, target: Path) -> _Found | None:
    """None: nothing is there. Raises PermissionError for a link that another user made."""
    try:
        descriptor = os.open(name, _LOOK, dir_fd=here)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISLNK(found.st_mode):
            return _Found(found.st_mode, "")
        if found.st_uid not in (0, os.geteuid()):
            told = f"{name} is a link of user {found.st_uid}, and not followed; name the place that it leads to"
            raise PermissionError(errno.EPERM, told, str(target))
        return _Found(found.st_mode, os.readlink("", dir_fd=descriptor))  # of the link that was looked at
    finally:
        os.close(descriptor)
