"""The last lines of a file are found from its end, in steps, and by nobody who has gone."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from jobyard.server import log_tail
from jobyard.server.log_tail import read_block, tail_offset
from jobyard.server.logs import Reader


@pytest.mark.parametrize("seed", range(20))
async def test_a_tail_begins_where_its_lines_do_however_it_is_cut_into_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(log_tail, "FIRST_BYTES", chance.randint(1, 9))
    monkeypatch.setattr(log_tail, "STEP_BYTES", chance.randint(1, 30))
    path = tmp_path / "log"
    path.write_bytes(bytes(chance.choice(b"ab\n\n") for _ in range(chance.randint(1, 120))))
    lines = path.read_bytes().splitlines(keepends=True)
    for wanted in range(1, len(lines) + 3):
        with path.open("rb") as file:
            assert await tail_offset(file, wanted) == sum(map(len, lines[:-wanted]))


async def test_nobody_looks_for_the_tail_of_a_caller_who_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve short requests for all lines of a log of newlines once held all threads of the server for 21 s."""
    (tmp_path / "log").write_bytes(b"\n" * 1000)
    monkeypatch.setattr(log_tail, "FIRST_BYTES", 10)
    monkeypatch.setattr(log_tail, "STEP_BYTES", 10)
    is_reading, may_read, blocks = asyncio.Event(), threading.Event(), list[int]()
    loop = asyncio.get_running_loop()

    def block(file: BinaryIO, position: int, size: int) -> bytes:
        blocks.append(position)
        loop.call_soon_threadsafe(is_reading.set)
        may_read.wait()
        return read_block(file, position, size)

    monkeypatch.setattr(log_tail, "read_block", block)
    finding = asyncio.create_task(Reader(tmp_path / "log").skip_to_tail(1 << 50))
    await is_reading.wait()
    may_read.set()
    finding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await finding
    await loop.shutdown_default_executor()  # once its threads have ended nobody reads
    assert blocks == [990]
