"""Output writing: how does what a task wrote get into the file that its submitter named, and into no other one?

The directory may belong to another user, as with `--run-as` or a shared disk, who may put links there at any moment. So
each directory is opened from the one before, and a link leads on only where root or the server's own user made it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from jobyard.server.logs import open_log

GROW_BYTES = 16 << 20  # at one look: others have their turn
_PIECE_BYTES = 1 << 20
LINKS_MOST = 40  # on the way to one file, as in the kernel
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHANGE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Grown(NamedTuple):
    """A file as it was left."""

    device: int
    inode: int
    bytes: int


def write_output(sources: Sequence[Path], target: Path) -> None:
    """Write the logs, one after another. A file that has their beginning already goes on, so that who follows it sees
    the end; in the place of any other one the new one appears whole.

    Raises OSError for what cannot be written, also for what is there and is no file, such as a named pipe.
    """
    with _place(target) as (directory, name), ExitStack() as opened:
        files = []
        for source in sources:
            with suppress(FileNotFoundError):
                files.append(opened.enter_context(open_log(source)))
        logs, own = _Logs(files), _own(directory, name)
        if own is not None:
            with own:
                if logs.begin_with(own):
                    _bring_on(own, logs)
                    os.utime(own.fileno())  # also where nothing was missing: it was written now
                    return
        _replace(directory, name, logs)


def grow_output(log: BinaryIO, target: Path, grown: Grown | None, *, is_new: bool) -> Grown | None:
    """Bring the file on to what is in the log by now, and say how it was left. `is_new`: another attempt begins, and
    what the file has goes, as with Slurm.

    None: it is not the file that was left (`grown`), and whatever it is stays as it is. Raises OSError.
    """
    logs = _Logs([log])
    with _place(target) as (directory, name):
        own = _own(directory, name)
        if own is None:
            return None if grown and not is_new else _replace(directory, name, logs, GROW_BYTES)
        with own:
            found = os.fstat(own.fileno())
            is_as_left = grown == Grown(found.st_dev, found.st_ino, found.st_size)
            if not is_as_left and grown and not is_new:
                return None
            if not is_as_left and not logs.begin_with(own):
                return _replace(directory, name, logs, GROW_BYTES)
            if is_as_left and (is_new or logs.size() < found.st_size):  # or the task has emptied its log
                own.truncate(0)
            return _bring_on(own, logs, GROW_BYTES)


class _Logs:
    """Several logs as if they were one."""

    def __init__(self, files: Sequence[BinaryIO]) -> None:
        self._files = files

    def size(self) -> int:
        return sum(file.seek(0, 2) for file in self._files)

    def pieces(self, begin: int = 0, most: int | None = None) -> Iterator[bytes]:
        left = most
        for file in self._files:
            size = file.seek(0, 2)
            file.seek(min(begin, size))
            begin = max(0, begin - size)
            while left is None or left > 0:
                piece = file.read(_PIECE_BYTES if left is None else min(left, _PIECE_BYTES))
                if not piece:
                    break
                left = None if left is None else left - len(piece)
                yield piece

    def begin_with(self, file: BinaryIO) -> bool:
        """Whether all that is in the file is their beginning."""
        file.seek(0)
        for piece in self.pieces():
            found = file.read(len(piece))
            if not piece.startswith(found):
                return False
            if len(found) < len(piece):
                return True
        return not file.read(1)


def _own(directory: int, name: str) -> BinaryIO | None:
    """The file of this name, to change; None where there is none that is only here and of our own user."""
    try:
        descriptor = os.open(name, _CHANGE, dir_fd=directory)
    except OSError:
        return None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid != os.geteuid():
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "r+b")


def _bring_on(file: BinaryIO, logs: _Logs, most: int | None = None) -> Grown:
    """Append what is missing. Says how the file is then."""
    for piece in logs.pieces(file.seek(0, 2), most):
        file.write(piece)
    file.flush()
    found = os.fstat(file.fileno())
    return Grown(found.st_dev, found.st_ino, found.st_size)


def _replace(directory: int, name: str, logs: _Logs, most: int | None = None) -> Grown:
    """With a new file, in the place of whatever file is there."""
    draft, descriptor = _draft(directory, name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            made = _bring_on(file, logs, most)
        os.replace(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
        return made
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
