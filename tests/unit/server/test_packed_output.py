"""Whoever reads the output of a task reads on when its files are packed."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobyard.agent_protocol import packing, records
from jobyard.agent_protocol.pack_blocks import scan
from jobyard.errors import OutputDamaged
from jobyard.executors.mirror import Mirror, tasks_in
from jobyard.model.task import AttemptId
from jobyard.server.lifetime import Lifetime
from jobyard.server.log_request import LogRequest
from jobyard.server.logs import (
    DamagedLog,
    LogStream,
    Reader,
    damage_of,
    last_line,
    log_path,
    log_size,
    open_log,
    tail_lines,
)
from jobyard.server.routes.logs import _pieces, raw_log
from jobyard.server.routes.results import _gather
from tests.unit.server.running import RunningYard, a_yard

LINES = "".join(f"line {number}\n" for number in range(1000))


def written(directory: Path, task: int = 0, text: str = LINES, number: int = 1) -> Path:
    path = Path(records.paths(str(directory), f"j.{task}.{number}").out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def packed(directory: Path, task: int = 0, text: str = LINES, number: int = 1) -> Path:
    path = written(directory, task, text, number)
    packing.pack(str(directory / "jobs" / "j"), [(task, number)])
    assert not path.exists()
    return path


def pack_all(yard: RunningYard, job: str, tasks: int, *, begin: int = 0) -> None:
    """The files that the played machine has lie where an agent's would, and are packed."""
    mirror = yard.loop.mirror = Mirror(yard.directory / "mirror")
    for attempt in (AttemptId(job, task, 1) for task in range(begin, tasks)):
        for stream in ("out", "err"):
            path = mirror.path(attempt, stream)
            path.parent.mkdir(parents=True, exist_ok=True)
            log_path(yard.loop, attempt, stream).rename(path)
    packing.pack(str(path.parent.parent), [(task, 1) for task in range(begin, tasks)])
    assert not os.path.lexists(path)


async def text_of(stream: LogStream) -> str:
    return "".join([chunk.data async for chunk in stream.chunks()])


@pytest.mark.parametrize("cut", [0, 1, 4000, len(LINES) - 1, len(LINES)])
def test_a_reader_in_the_middle_of_a_file_goes_on_in_the_pack(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path, text=LINES[:cut])
    reader = Reader(path)
    before = "".join(reader.read())
    packed(tmp_path)
    assert before + "".join(reader.read(final=True)) == LINES


async def test_a_reader_begins_with_the_last_lines_of_what_was_packed(tmp_path: Path) -> None:
    reader = Reader(packed(tmp_path))
    await reader.skip_to_tail(2)
    assert "".join(reader.read(final=True)) == "line 998\nline 999\n"


def test_of_several_places_the_one_with_the_pack_is_read(tmp_path: Path) -> None:
    path = packed(tmp_path / "b")
    elsewhere = Path(str(path).replace(str(tmp_path / "b"), str(tmp_path / "a")))
    assert "".join(Reader(elsewhere, path).read(final=True)) == LINES


def test_the_size_of_what_was_packed_is_known(tmp_path: Path) -> None:
    assert log_size(packed(tmp_path)) == len(LINES)
    assert log_size(packed(tmp_path, 1, "")) == 0
    assert log_size(tmp_path / "jobs/j/0/2.1.out") is None


def test_damaged_output_is_told_apart_from_what_a_task_wrote(tmp_path: Path) -> None:
    path, pack = packed(tmp_path), tmp_path / "jobs/j/pack"
    with pack.open("rb") as file:
        blocks, _ = scan(file.fileno(), 0)
    data = bytearray(pack.read_bytes())
    data[blocks[0].offset + 9] ^= 255
    pack.write_bytes(data)
    with pytest.raises(DamagedLog, match=r"^the packed output of tasks 0 to 0 is damaged [(]"):
        open_log(path)
    reader = Reader(path)
    assert ("".join(reader.read()), reader.damage) == ("", ""), "it may be about to begin, and to have a file"
    assert ("".join(reader.read(final=True)), reader.damage) == ("", damage_of(path))


def test_what_can_be_read_has_no_damage(tmp_path: Path) -> None:
    for path in (packed(tmp_path), written(tmp_path, 1), tmp_path / "jobs/j/0/7.1.out"):
        assert damage_of(path) == ""


async def test_a_damaged_log_is_refused_to_who_asks_for_it_raw(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("echo one")
        await yard.ended(job)
        pack_all(yard, job, 1)
        request: Any = SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(yard=yard)))
        assert (await raw_log(request, job)).status_code == 200
        pack = next(yard.directory.glob("mirror/jobs/*/pack"))
        os.truncate(pack, pack.stat().st_size - 3)
        with pytest.raises(OutputDamaged, match="the packed output of tasks 0 to 0 is damaged"):
            await raw_log(request, job)


def test_a_pack_that_cannot_be_opened_is_told_like_a_damaged_one(tmp_path: Path) -> None:
    path, pack = packed(tmp_path), tmp_path / "jobs/j/pack"
    pack.unlink()
    pack.symlink_to(pack)
    with pytest.raises(DamagedLog, match=r"^the packed output cannot be read now [(]Too many levels"):
        open_log(path)


async def test_of_several_tasks_only_the_damaged_ones_are_missing(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("echo one", "echo two")
        await yard.ended(job)
        pack_all(yard, job, 1)
        pack_all(yard, job, 2, begin=1)
        pack = next(yard.directory.glob("mirror/jobs/*/pack"))
        data = bytearray(pack.read_bytes())
        data[-1] ^= 1
        pack.write_bytes(data)
        request = LogRequest(yard.job(job), "", None, ["out", "err"], None)
        chunks = [chunk async for chunk in LogStream(yard.loop, request, follow=False).chunks()]
        assert [(chunk.task, chunk.data) for chunk in chunks if chunk.data] == [("0", "one\n")]
        assert {(chunk.task, chunk.damage.split(" (")[0]) for chunk in chunks if not chunk.data} == {
            ("1", "the packed output of tasks 1 to 1 is damaged")
        }


async def test_output_is_the_same_before_and_after_it_is_packed(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("echo one; echo oh >&2", "true", "echo three")
        await yard.ended(job)
        request = LogRequest(yard.job(job), "", None, ["out", "err"], None)
        before = await text_of(LogStream(yard.loop, request, follow=False))
        pack_all(yard, job, 3)
        assert await text_of(LogStream(yard.loop, request, follow=False)) == before == "one\noh\nthree\n"
        first = AttemptId(job, 0, 1)
        assert tail_lines(yard.loop, first) == ("oh",)
        assert last_line(yard.loop, first) in ("one", "oh")


async def test_a_cursor_from_before_goes_on_in_the_pack(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("echo one", "echo two")
        await yard.ended(job)
        request = LogRequest(yard.job(job), "", None, ["out"], None)
        stream = LogStream(yard.loop, request, follow=False)
        async for chunk in stream.chunks():
            assert chunk.data == "one\n"
            break
        cursor = stream.cursor()
        pack_all(yard, job, 2)
        assert await text_of(LogStream(yard.loop, request, follow=False, cursor=cursor)) == "two\n"


def test_a_fetch_brings_what_was_packed(tmp_path: Path) -> None:
    packed(tmp_path, 0, "zero\n")
    packed(tmp_path, 1, "")
    written(tmp_path, 2, "two\n")
    assert tasks_in(tmp_path, "j") == {0, 1, 2}
    whole = _gather([tmp_path], [(str(task), AttemptId("j", task, 1)) for task in range(4)], tmp_path)
    assert whole is not None
    with whole, tarfile.open(fileobj=whole, mode="r:") as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    assert found == {"0.out": b"zero\n", "0.err": b"", "1.out": b"", "1.err": b"", "2.out": b"two\n", "2.err": b""}


def test_a_fetch_names_what_cannot_be_read_and_brings_the_rest(tmp_path: Path) -> None:
    packed(tmp_path, 0, "zero\n")
    packed(tmp_path, 1, "one\n")
    os.truncate(tmp_path / "jobs/j/pack", (tmp_path / "jobs/j/pack").stat().st_size - 1)
    whole = _gather([tmp_path], [(str(task), AttemptId("j", task, 1)) for task in range(2)], tmp_path)
    assert whole is not None
    with whole, tarfile.open(fileobj=whole, mode="r:") as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    assert (found["0.out"], found.get("1.out")) == (b"zero\n", None)
    assert b"the packed output of tasks 1 to 1 is damaged" in found["1.damaged"]


async def test_the_raw_output_of_a_task_is_what_was_packed(tmp_path: Path) -> None:
    yard: Any = SimpleNamespace(lifetime=Lifetime(None, lambda: False))
    assert b"".join([piece async for piece in _pieces(yard, packed(tmp_path))]).decode() == LINES
