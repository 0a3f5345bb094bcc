"""Archive: how is a tree written as a tar? In GNU's format: any name as its bytes, any length, whole seconds, uid 0."""

from __future__ import annotations

import os
import struct
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator

from jobyard.staging.tree import Entry, EntryKind

_HEADER = struct.Struct("100s 8s 8s 8s 12s 12s 8s 1s 100s 8s 32s 32s 8s 8s 155s 12x")
_CHECKSUM_AT = 148
_TYPES = {EntryKind.FILE: tarfile.REGTYPE, EntryKind.DIRECTORY: tarfile.DIRTYPE, EntryKind.LINK: tarfile.SYMTYPE}
_NAME_BYTES = 100
_OCTAL_LIMIT = 8**11


def tar_of(entries: Iterable[Entry], content_of: Callable[[Entry], Iterator[bytes]]) -> Iterator[bytes]:
    """The archive in pieces; the same entries and contents give the same bytes. Files yield exactly their size."""
    total = 0
    for entry in entries:
        header = header_of(entry)
        yield header
        if entry.kind is EntryKind.FILE:
            yield from content_of(entry)
        padding = -entry.size % tarfile.BLOCKSIZE
        if padding:
            yield bytes(padding)
        total += len(header) + entry.size + padding
    yield bytes(2 * tarfile.BLOCKSIZE + -(total + 2 * tarfile.BLOCKSIZE) % tarfile.RECORDSIZE)


def header_of(entry: Entry) -> bytes:
    """The bytes that tarfile would write, which takes five times as long."""
    name = entry.path + b"/" if entry.kind is EntryKind.DIRECTORY else entry.path
    seconds = max(0, entry.mtime_ns // 1_000_000_000)
    if max(len(name), len(entry.target)) > _NAME_BYTES or max(entry.size, seconds) >= _OCTAL_LIMIT:
        return _long_header(entry, seconds)
    header = bytearray(
        _HEADER.pack(
            name,
            b"%07o" % entry.mode,
            b"0000000",
            b"0000000",
            b"%011o" % entry.size,
            b"%011o" % seconds,
            b"        ",
            _TYPES[entry.kind],
            entry.target,
            tarfile.GNU_MAGIC,
            b"",
            b"",
            b"",
            b"",
            b"",
        )
    )
    header[_CHECKSUM_AT : _CHECKSUM_AT + 8] = b"%06o\0 " % sum(header)
    return bytes(header)


def _long_header(entry: Entry, seconds: int) -> bytes:
    info = tarfile.TarInfo(os.fsdecode(entry.path))
    info.type, info.mode, info.size, info.mtime = _TYPES[entry.kind], entry.mode, entry.size, seconds
    info.linkname = os.fsdecode(entry.target)
    return info.tobuf(tarfile.GNU_FORMAT, sys.getfilesystemencoding(), "surrogateescape")
