"""Members of an archive that a task may have written: which may be taken, and how are they passed on?"""

from __future__ import annotations

import os
import sys
import tarfile
from collections.abc import Callable, Iterator
from typing import IO, cast

# What tarfile raises for damaged or hostile archives.
DAMAGE = (tarfile.TarError, EOFError, ValueError, OverflowError, LookupError, RecursionError)
_LATEST = 8**11  # seconds; what a header has room for


def open_archive(file: IO[bytes]) -> tarfile.TarFile:
    """Only a plain tar: a compressed one may be a thousand times as large. Names are bytes, in whatever encoding."""
    return tarfile.open(fileobj=file, mode="r:", encoding=sys.getfilesystemencoding(), errors="surrogateescape")


def new_archive(file: IO[bytes]) -> tarfile.TarFile:
    return tarfile.open(
        fileobj=file,
        mode="w",
        format=tarfile.GNU_FORMAT,
        encoding=sys.getfilesystemencoding(),
        errors="surrogateescape",
    )


def members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """All of them, in their order. Raises one of DAMAGE where the archive is not whole."""
    assert tar.fileobj is not None
    end = os.fstat(cast(IO[bytes], tar.fileobj).fileno()).st_size
    for member in tar:
        if member.size < 0:  # would make tarfile loop for ever
            raise tarfile.ReadError(f"{member.name!r} has a size of {member.size}")
        if member.isreg() and not member.issparse() and member.offset_data + member.size > end:
            raise tarfile.ReadError(f"it ends within {member.name!r}")
        yield member
    _check_end(tar)


def parts_of(name: str) -> list[bytes]:
    return [part for part in os.fsencode(name).split(b"/") if part not in (b"", b".")]


def refusal(member: tarfile.TarInfo, root: int = 0) -> str | None:
    """Why it may not be taken, if so. The first `root` parts of its path are the directory that its links stay in."""
    parts = parts_of(member.name)
    if _leads_out(member.name) or "\0" in member.linkname:
        return "its path leads out of the results"
    if member.issym():
        if not _stays_inside(len(parts) - 1 - root, os.fsencode(member.linkname)):
            return f"it is a link that leads out of the results, to {member.linkname!r}"
    elif member.islnk():
        if _leads_out(member.linkname) or parts_of(member.linkname)[:root] != parts[:root]:
            return "its target is not in the archive"
    elif not (member.isdir() or member.isreg()) or member.issparse():
        return "it is neither file, directory nor link"
    return None


def pass_on(
    source: tarfile.TarFile, member: tarfile.TarInfo, target: tarfile.TarFile, rename: Callable[[str], str]
) -> None:
    """Write it into another archive under a new name.

    Its header is a new one: a path in a pax header of the old one would win over the new name.
    """
    info = tarfile.TarInfo(rename(member.name))
    info.type = tarfile.REGTYPE if member.isreg() else member.type
    info.mode = member.mode & 0o777
    info.mtime = int(member.mtime) if 0 <= member.mtime < _LATEST else 0
    info.linkname = rename(member.linkname) if member.islnk() else member.linkname
    if member.isreg():
        info.size = member.size
        target.addfile(info, source.extractfile(member))
    else:
        target.addfile(info)


def _leads_out(name: str) -> bool:
    return name.startswith("/") or "\0" in name or b".." in parts_of(name)


def _stays_inside(depth: int, target: bytes) -> bool:
    """From `depth` directories down, none of them a link: first up, at most to the top, then only down.

    Up again after down could leave through an existing link: `a/..` may lead elsewhere.
    """
    steps = [step for step in target.split(b"/") if step not in (b"", b".")]
    ups = 0
    while ups < len(steps) and steps[ups] == b"..":
        ups += 1
    return target[:1] not in (b"", b"/") and ups <= depth and b".." not in steps[ups:]


def _check_end(tar: tarfile.TarFile) -> None:
    """tarfile takes a broken header for the end; the end is a block of zeros."""
    assert tar.fileobj is not None
    tar.fileobj.seek(tar.offset)
    if tar.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError(f"it ends after {tar.offset} bytes without a closing mark")
