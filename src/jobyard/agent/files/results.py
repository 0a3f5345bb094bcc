"""Results: which files of an ended attempt are sent to the server, and how are they packed?"""

from __future__ import annotations

import errno
import os
import stat
import sys
import tarfile
import time
from contextlib import suppress
from typing import IO, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from jobyard.agent.files import snapshots, trees
from jobyard.agent.files.trees import Difference
from jobyard.agent_protocol.records import Collection, Paths

LEFT_OUT = frozenset({"job_results", ".git"})
_END_BYTES = 2 * tarfile.BLOCKSIZE
_FULL = (errno.ENOSPC, errno.EDQUOT)
_WAITS_SECONDS = (1.0, 2.0, 4.0, 8.0)  # a disk that is full may have room again


class Found(NamedTuple):
    """A file, link or new directory, and the name under which it is sent."""

    name: str
    path: str
    seen: os.stat_result


def is_due(files: Paths, collection: Collection) -> bool:
    """Did the process that was to pack this attempt's results die before it was done?"""
    if os.path.exists(files.results):
        return False
    return bool(collection.snapshot) or _has_content(files.output)


def gather_again(files: Paths, collection: Collection, state_dir: str) -> None:
    """Gather what a dead lane left."""
    tree = snapshots.tree(state_dir, collection.snapshot) if collection.snapshot else ""
    try:
        changes = list(trees.differences(tree, files.work)) if tree else []
    except OSError as error:  # say, the snapshot is gone
        give_up(files, error, bool(tree))
        return
    if gather(files, changes, collection.copy_back, bool(tree)):
        snapshots.remove_tree(files.work)


def gather(files: Paths, changes: Iterable[Difference], copy_back: List[str], has_tree: bool) -> bool:
    """Put what is new or changed under `copy_back`, and the output directory, into one archive; never raises.

    The archive appears whole. No results: it is empty. False: there is no room for it, `.err` says so,
    and the results are left where they are.
    """
    found = [*_changed(files.work, changes, copy_back), *_output(files.output)]
    if not found and not has_tree:
        return True
    for wait in (*_WAITS_SECONDS, None):
        try:
            _write(files, found)
            break
        except OSError as error:
            if wait is not None and error.errno in _FULL:
                time.sleep(wait)
                continue
            give_up(files, error, has_tree)
            return False
    if _has_content(files.output):
        snapshots.remove_tree(files.output)
    return True


def give_up(files: Paths, error: OSError, has_tree: bool) -> None:
    """Nothing is sent, and the task's own errors say so."""
    place = files.work if has_tree else files.output
    say(files.err, "the results could not be gathered (%s); they are left in %s" % (error.strerror, place))
    with suppress(OSError):
        _publish(files, b"")


def _changed(work: str, changes: Iterable[Difference], copy_back: List[str]) -> Iterator[Found]:
    for change in changes:
        is_wanted = _is_under(change.name, copy_back) and LEFT_OUT.isdisjoint(change.name.split("/"))
        if is_wanted and change.is_changed and _can_travel(change.after):
            assert change.after is not None
            yield Found(change.name, work + "/" + change.name, change.after)


def _can_travel(found: Optional[os.stat_result]) -> bool:
    return found is not None and stat.S_IFMT(found.st_mode) in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR)


def _is_under(name: str, copy_back: List[str]) -> bool:
    return any(path in ("", name) or name.startswith(path + "/") for path in copy_back)


def _output(directory: str) -> Iterator[Found]:
    for change in trees.differences("", directory):
        if _can_travel(change.after):
            assert change.after is not None
            yield Found("output/" + change.name, directory + "/" + change.name, change.after)


def _has_content(directory: str) -> bool:
    try:
        return bool(os.listdir(directory))
    except OSError:
        return False


def say(path: str, sentence: str) -> None:
    """Add a line to what the task wrote on stderr. A full disk keeps it from us, and that is no error."""
    with suppress(OSError), open(path, "ab") as file:
        file.write(("jobyard: %s\n" % sentence).encode("utf-8", "backslashreplace"))


def _write(files: Paths, found: List[Found]) -> None:
    if not found:
        _publish(files, b"")
        return
    draft = _draft(files)
    try:
        unread = _write_archive(draft, found)
        _appear(draft, files.results)
    finally:
        with suppress(OSError):
            os.unlink(draft)
    for name, why in unread:
        say(files.err, "%s did not come home: %s" % (name, why))


def _draft(files: Paths) -> str:
    return "%s.%d" % (files.results, os.getpid())


def _publish(files: Paths, content: bytes) -> None:
    draft = _draft(files)
    with open(draft, "wb") as file:
        file.write(content)
    _appear(draft, files.results)
    with suppress(OSError):
        os.unlink(draft)


def _appear(draft: str, path: str) -> None:
    """The first archive counts: a second process may have packed while files were removed."""
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        os.rename(draft, path)


def _write_archive(path: str, found: List[Found]) -> List[Tuple[str, str]]:
    """Returns what could not be read, and why. Raises OSError when the archive cannot be written."""
    unread = []
    with open(path, "wb") as file:
        archive = tarfile.TarFile(
            fileobj=file,
            mode="w",
            format=tarfile.GNU_FORMAT,
            encoding=sys.getfilesystemencoding(),
            errors="surrogateescape",
        )
        for entry in found:
            why = _add(archive, entry)
            if why:
                unread.append((entry.name, why))
        file.write(bytes(_END_BYTES))  # close() would fill it up to ten kilobytes, for tapes
    return unread


def _add(archive: tarfile.TarFile, entry: Found) -> str:
    """Why the entry could not be read; nothing has been written then."""
    info = tarfile.TarInfo(entry.name)
    info.mode, info.mtime = stat.S_IMODE(entry.seen.st_mode), int(entry.seen.st_mtime)
    if stat.S_ISDIR(entry.seen.st_mode):
        info.type = tarfile.DIRTYPE
        archive.addfile(info)
    elif stat.S_ISLNK(entry.seen.st_mode):
        try:
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(entry.path)
        except OSError as error:
            return error.strerror or str(error)
        archive.addfile(info)
    elif stat.S_ISREG(entry.seen.st_mode):
        try:
            # Not waiting: what was a file a moment ago may be a pipe now.
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            return error.strerror or str(error)
        with os.fdopen(descriptor, "rb") as file:
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode):
                return "it is no file any more"
            info.size = seen.st_size
            archive.addfile(info, _Exactly(file))  # type: ignore[arg-type]
    return ""


class _Exactly:
    """A file that gives as many bytes as it is asked for: what shrinks while it is read must not break the archive."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except OSError:
            data = b""
        return data.ljust(size, b"\0")
