"""Pack blocks: how do many small files lie in one, so that a half-written or a damaged part is told apart?

A pack is a row of blocks. Each has a header of fixed length: of which tasks it is, how long it is, its checksum. Behind
that, compressed: a line for each attempt with the lengths of its files, an empty line, the files.
"""

from __future__ import annotations

import os
import re
import zlib
from typing import Dict, List, NamedTuple, Sequence, Tuple

Key = Tuple[int, int]  # task and number of an attempt
Files = Dict[str, bytes]  # by the last part of their names: `rec`, `out`, ...

_MAGIC = b"yardpack1 "
_HEADER = re.compile(rb"yardpack1 (\d{15}) (\d{15}) (\d{10}) ([0-9a-f]{8}) ([0-9a-f]{8})\n")
HEADER_BYTES = 71
_STEP_BYTES = 1 << 20
_NOBODY_KNOWS = (0, 10**15)


class Block(NamedTuple):
    """Where a block lies, and of which tasks it may be."""

    offset: int  # of its content
    length: int
    checksum: int
    first: int
    last: int

    @property
    def is_readable(self) -> bool:
        return self.length > 0


class DamagedBlock(ValueError):
    """What lies there is not what was written."""


def encoded(attempts: Dict[Key, Files]) -> bytes:
    """A block with these files."""
    index: List[str] = []
    contents: List[bytes] = []
    for (task, number), files in attempts.items():
        sizes = " ".join("%s=%d" % (kind, len(content)) for kind, content in files.items())
        index.append("%d.%d %s\n" % (task, number, sizes))
        contents += files.values()
    content = zlib.compress("".join(index).encode("ascii") + b"\n" + b"".join(contents), 1)
    tasks = [task for task, _ in attempts]
    head = b"yardpack1 %015d %015d %010d %08x " % (min(tasks), max(tasks), len(content), zlib.crc32(content))
    return head + b"%08x\n" % zlib.crc32(head) + content


def decoded(content: bytes, block: Block) -> Dict[Key, Files]:
    """The files of a block. Raises DamagedBlock."""
    if not block.is_readable or len(content) != block.length or zlib.crc32(content) != block.checksum:
        raise DamagedBlock
    index, _, data = zlib.decompress(content).partition(b"\n\n")
    attempts: Dict[Key, Files] = {}
    offset = 0
    for line in index.decode("ascii").split("\n"):
        name, *sizes = line.split(" ")
        task, _, number = name.partition(".")
        files = attempts[int(task), int(number)] = {}
        for kind, _, size in (word.partition("=") for word in sizes if word):
            files[kind] = data[offset : offset + int(size)]
            offset += int(size)
    return attempts


def scan(descriptor: int, begin: int) -> "Tuple[List[Block], int]":
    """The blocks from this offset on, and where the last whole one ends: what follows was never finished.

    A damaged header stands as a block that nobody can read, and of which nobody knows whose files were in it. It was
    never finished if there are only zeros from there on: the machine stopped before the rest was on its disk.
    """
    blocks: List[Block] = []
    size, offset = os.fstat(descriptor).st_size, begin
    while size - offset >= HEADER_BYTES:
        head = os.pread(descriptor, HEADER_BYTES, offset)
        found = _parsed(head, offset)
        if found is None:
            following = _next_header(descriptor, offset + 1, size)
            if following == size and _is_zero(descriptor, offset, size):
                break
            blocks.append(Block(offset, 0, 0, *_NOBODY_KNOWS))
            offset = following
        elif found.offset + found.length > size:
            break
        else:
            blocks.append(found)
            offset = found.offset + found.length
    return blocks, offset


def header_at(descriptor: int, offset: int) -> "Block | None":
    """The block that begins here, whether it is whole or not."""
    return _parsed(os.pread(descriptor, HEADER_BYTES, offset), offset)


def _parsed(head: bytes, offset: int) -> "Block | None":
    match = _HEADER.fullmatch(head)
    if match is None or zlib.crc32(head[: match.start(5)]) != int(match[5], 16):
        return None
    return Block(offset + HEADER_BYTES, int(match[3]), int(match[4], 16), int(match[1]), int(match[2]))


def _next_header(descriptor: int, offset: int, size: int) -> int:
    """Where the next header begins; the end where there is none."""
    while offset < size:
        piece = os.pread(descriptor, _STEP_BYTES + HEADER_BYTES, offset)
        for match in re.finditer(_MAGIC, piece[: _STEP_BYTES + len(_MAGIC) - 1]):
            begin = match.start()
            if _parsed(piece[begin : begin + HEADER_BYTES], 0) is not None:
                return offset + begin
        offset += _STEP_BYTES
    return size


def _is_zero(descriptor: int, offset: int, size: int) -> bool:
    """From this offset to the end."""
    while offset < size:
        piece = os.pread(descriptor, _STEP_BYTES, offset)
        if piece.strip(b"\0"):
            return False
        offset += _STEP_BYTES
    return True


def in_blocks(attempts: "Sequence[Tuple[Key, Files]]", most_bytes: int) -> "List[Dict[Key, Files]]":
    """Cut into pieces of about this size, each for one block."""
    pieces: List[Dict[Key, Files]] = [{}]
    size = 0
    for key, files in attempts:
        if size >= most_bytes:
            pieces.append({})
            size = 0
        pieces[-1][key] = files
        size += 32 + sum(map(len, files.values()))
    return pieces if pieces[0] else []
