"""Unpacking results: how are a task's results put in place? In their directory only, and never over existing files."""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from jobyard.errors import Rejected, Unwritable
from jobyard.staging.members import DAMAGE, members, open_archive, parts_of, refusal
from jobyard.staging.placing import clear_part, make_directory, move, put

_NAMED = 20  # more than a person reads, less than fills a journal
_UNUSABLE_NAME = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)


@dataclass(frozen=True)
class Unpacked:
    """`kept_apart` are files that got another name, because a different one was there; `left_out` says what and why."""

    directory: Path
    files: int = 0
    kept_apart: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def unpack_results(
    archive: str | os.PathLike[str], directory: str | os.PathLike[str], *, attempt: int = 1, suffix: str = ""
) -> Unpacked:
    """Put what is in the tar into `directory`, which exists afterwards in any case; an empty file is an empty tar.

    What is there stays: a different file of the same name is written beside it as `NAME.attemptN`, or with the suffix
    that is given. Safe to repeat, also after a crash. Nothing outside `directory` is touched, whatever the archive
    says: absolute paths, `..`, links that lead out and devices are left out, setuid bits are dropped. Raises Rejected
    (a damaged archive) and Unwritable.
    """
    home = Path(directory)
    unpacking = _Unpacking(os.fsencode(home), os.fsencode(suffix) or _suffix(attempt))
    size = os.path.getsize(archive)
    try:
        home.mkdir(parents=True, exist_ok=True)
        if size:
            with open(archive, "rb") as file, open_archive(file) as tar:
                unpacking.take_all(tar)
    except DAMAGE as error:
        raise Rejected(f"the results archive {os.fspath(archive)!r} is damaged: {error}") from error
    except OSError as error:
        raise _unwritable(home, error) from None
    return Unpacked(home, unpacking.files, _first(unpacking.kept_apart), _first(unpacking.left_out))


def copy_log(source: str | os.PathLike[str], target: str | os.PathLike[str], *, attempt: int = 1) -> Path:
    """Put an attempt's output beside its results, by the same rules; returns where. No source counts as empty."""

    def write(part: bytes) -> None:
        try:
            shutil.copyfile(source, part)
        except FileNotFoundError:
            with open(part, "wb"):
                pass

    home = Path(target)
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        return Path(os.fsdecode(put(os.fsencode(home), _suffix(attempt), write)))
    except OSError as error:
        raise _unwritable(home.parent, error) from None


def clear_parts(directory: str | os.PathLike[str], log: str | os.PathLike[str], *, attempt: int) -> None:
    """Remove what `unpack_results` and `copy_log` had half written when they were killed. Safe to repeat."""
    suffix = _suffix(attempt)
    clear_part(os.path.dirname(os.fsencode(log)), suffix)
    for place, _, _ in os.walk(os.fsencode(directory)):
        clear_part(place, suffix)


def take_back(archive: str | os.PathLike[str], directory: str | os.PathLike[str]) -> None:
    """Undo `unpack_results`: remove what is still as the archive has it. All else stays, and so do directories."""
    for path in _unchanged(archive, Path(directory).resolve()):
        path.unlink()


def take_back_log(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Undo `copy_log`."""
    if _is_log(source, Path(target)):
        os.unlink(target)


def set_aside(archive: str | os.PathLike[str], directory: str | os.PathLike[str], *, attempt: int) -> None:
    """Make room for a later attempt: what is still as the archive has it moves to `DIRECTORY.attemptN`.

    All else stays; directories that are empty then go. Safe to repeat, also after a crash.
    """
    home, suffix = Path(directory).resolve(), _suffix(attempt)
    aside: _Unpacking | None = None
    for path in _unchanged(archive, home):
        if aside is None:
            aside = _Unpacking(make_directory(os.fsencode(directory) + suffix, suffix)[0], suffix)
        *parents, name = (os.fsencode(part) for part in path.relative_to(home).parts)
        move(os.fsencode(path), os.path.join(aside.directory(parents), name), suffix)
        _prune(path.parent, home)


def set_log_aside(source: str | os.PathLike[str], target: str | os.PathLike[str], *, attempt: int) -> None:
    """Make room for the output of a later attempt, by the same rules."""
    if _is_log(source, Path(target)):
        move(os.fsencode(target), os.fsencode(target) + _suffix(attempt), _suffix(attempt))


def _suffix(attempt: int) -> bytes:
    return f".attempt{attempt}".encode()


def _unchanged(archive: str | os.PathLike[str], home: Path) -> Iterator[Path]:
    """Files of `unpack_results` that were not changed since."""
    if not os.path.exists(archive) or not os.path.getsize(archive):
        return
    with suppress(*DAMAGE), open(archive, "rb") as file, open_archive(file) as tar:
        for member in members(tar):
            wanted = home.joinpath(member.name)
            path = wanted.parent.resolve() / wanted.name
            if path.is_relative_to(home) and _is_unchanged(path, tar, member):
                yield path


def _is_log(source: str | os.PathLike[str], target: Path) -> bool:
    if not target.is_file() or target.is_symlink():
        return False
    return filecmp.cmp(source, target, shallow=False) if os.path.exists(source) else not target.stat().st_size


def _prune(directory: Path, home: Path) -> None:
    with suppress(OSError):
        while directory != home:
            directory.rmdir()
            directory = directory.parent


def _is_unchanged(path: Path, tar: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    if path.is_symlink():
        return member.issym() and os.readlink(path) == member.linkname
    if not member.isreg() or not path.is_file() or path.stat().st_size != member.size:
        return False
    content = tar.extractfile(member)
    assert content is not None
    with content, path.open("rb") as file:
        return all(file.read(len(piece)) == piece for piece in iter(lambda: content.read(1 << 20), b""))


@dataclass
class _Unpacking:
    home: bytes
    suffix: bytes
    files: int = 0
    kept_apart: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    regular: dict[str, tarfile.TarInfo] = field(default_factory=dict)
    places: dict[bytes, bytes] = field(default_factory=dict)  # directories, and their real paths if the name was taken
    made: set[bytes] = field(default_factory=set)
    described: dict[bytes, tarfile.TarInfo] = field(default_factory=dict)

    def take_all(self, tar: tarfile.TarFile) -> None:
        for member in members(tar):
            try:
                why = self._take(tar, member)
            except OSError as error:
                if error.errno not in _UNUSABLE_NAME:
                    raise
                why = error.strerror
            if why:
                self.left_out.append(f"{member.name!r}: {why}")
        # Modes and times of directories come last: what is put into them needs the one and changes the other.
        for place in sorted(self.described, reverse=True):
            os.chmod(place, self.described[place].mode & 0o777 | stat.S_IRWXU)
            _set_time(place, self.described[place])

    def _take(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> str | None:
        """Why it is left out, if it is."""
        parts, why = parts_of(member.name), refusal(member)
        if why or not parts:
            return why
        if member.isdir():
            place = self.directory(parts)
            if place in self.made:
                self.described[place] = member
            return None
        if member.issym():
            self._put(parts, lambda part: os.symlink(os.fsencode(member.linkname), part))
            return None
        content = self.regular.get(member.linkname) if member.islnk() else member
        if content is None:
            return "its target is not in the archive"
        self.regular[member.name] = content
        self._put(parts, lambda part: _extract(tar, content, member, part))
        return None

    def _put(self, parts: list[bytes], write: Callable[[bytes], None]) -> None:
        written = put(os.path.join(self.directory(parts[:-1]), parts[-1]), self.suffix, write)
        self.files += 1
        if os.path.basename(written) != parts[-1]:
            self.kept_apart.append(os.fsdecode(os.path.relpath(written, self.home)))

    def directory(self, parts: list[bytes]) -> bytes:
        """A real directory, with all above it: a file or a link that has the name keeps it, and is never followed."""
        place = self.home
        for part in parts:
            wanted = os.path.join(place, part)
            if wanted not in self.places:
                self.places[wanted], is_new = make_directory(wanted, self.suffix)
                self.made |= {self.places[wanted]} if is_new else set()
            place = self.places[wanted]
        return place


def _extract(tar: tarfile.TarFile, content: tarfile.TarInfo, member: tarfile.TarInfo, part: bytes) -> None:
    source = tar.extractfile(content)
    assert source is not None
    with source, open(part, "wb") as file:
        shutil.copyfileobj(source, file, 1024 * 1024)
        os.fchmod(file.fileno(), member.mode & 0o777 | stat.S_IRUSR)
    _set_time(part, member)


def _set_time(path: bytes, member: tarfile.TarInfo) -> None:
    with suppress(ValueError, OverflowError):  # a time that is out of range
        os.utime(path, (member.mtime, member.mtime))


def _first(names: list[str]) -> tuple[str, ...]:
    more = len(names) - _NAMED
    return (*names[:_NAMED], f"and {more} more") if more > 0 else tuple(names)


def _unwritable(home: Path, error: OSError) -> Unwritable:
    return Unwritable(f"results cannot be written to {str(home)!r}: {error.strerror}; make room or make it writable")
