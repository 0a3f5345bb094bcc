"""Log tail: where in a file do its last lines begin? Found from the end, in steps; others have their turn."""

from __future__ import annotations

import asyncio
from typing import BinaryIO

FIRST_BYTES = 1 << 16  # most tails are short
STEP_BYTES = 1 << 20  # read by a thread at once: a millisecond, so that a thousand callers share the threads


async def tail_offset(file: BinaryIO, lines: int) -> int:
    """Whoever cancels it waits for one step at most."""
    position = file.seek(0, 2)
    step, needed = FIRST_BYTES, max(1, lines)
    is_end = True
    while position > 0:
        size = min(step, position)
        position -= size
        block = await asyncio.to_thread(read_block, file, position, size)
        if is_end and lines and block.endswith(b"\n"):
            needed += 1  # a newline at the very end closes the last line
        count = block.count(b"\n")
        if count >= needed:
            return position + _behind_newline(block, needed)
        needed -= count
        step, is_end = STEP_BYTES, False
    return 0


def read_block(file: BinaryIO, position: int, size: int) -> bytes:
    file.seek(position)
    return file.read(size)


def _behind_newline(block: bytes, nth: int) -> int:
    """Where the line behind the nth newline from the end begins; halved each time, as a loop would look at each."""
    low, high = 0, len(block)
    while high - low > 1:
        middle = (low + high) // 2
        if (behind := block.count(b"\n", middle, high)) >= nth:
            low = middle
        else:
            nth -= behind
            high = middle
    return low + 1
