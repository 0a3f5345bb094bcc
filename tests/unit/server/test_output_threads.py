"""A directory that hangs keeps nobody's files back but its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jobyard.server import output_files, output_threads
from jobyard.server.output_files import SLOW
from jobyard.server.output_threads import OutputThreads, Work, mount_of, mount_points
from jobyard.server.output_writing import write_output
from tests.unit.server.running import a_batch, a_yard
from tests.unit.server.test_output_files import asking, submitted, until, writing
from tests.waiting import PATIENCE_SECONDS


class Hanging:
    """A file system that does not answer, until it does."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[Path] = []
        self.below = "hangs"

    def write(self, sources: Any, target: Path) -> None:
        if self.below in str(target):
            self.asked.append(target)
            assert self.answers.wait(120)
        write_output(sources, target)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    found = Hanging()
    monkeypatch.setattr(output_files, "write_output", found.write)
    monkeypatch.setattr(output_threads, "PATIENT_SECONDS", 0.01)
    monkeypatch.setattr(output_files, "WAIT_SECONDS", 2 * PATIENCE_SECONDS)
    yield found
    found.answers.set()


async def test_who_writes_elsewhere_has_its_files_while_a_directory_hangs(tmp_path: Path, hanging: Hanging) -> None:
    async with a_yard(tmp_path) as yard, writing(yard) as files:
        slow = await submitted(yard, asking(a_batch("echo one", "echo two"), f"{tmp_path}/hangs/%t"))
        await yard.ended(slow)
        for name in ("first", "second"):
            job = await submitted(yard, asking(a_batch("echo fine"), f"{tmp_path}/{name}"))
            await yard.ended(job)
            assert not await files.written(job)
            assert (tmp_path / name).read_text() == "fine\n"
        assert f"tasks 0 to 1 is not in its file ({SLOW}: {tmp_path}/hangs)" in files.missing(slow)
        assert len(hanging.asked) == 1, "one thread waits for it, and no more"
        hanging.answers.set()
        assert not await files.written(slow), "its end is told when its files are there"
        assert [(tmp_path / "hangs" / task).read_text() for task in "01"] == ["one\n", "two\n"]


async def test_a_file_that_cannot_be_written_is_not_waited_for_as_one_that_is_slow_was(
    tmp_path: Path, hanging: Hanging
) -> None:
    hanging.below = f"{tmp_path}/1/"
    (tmp_path / "0").write_text("no directory")
    async with a_yard(tmp_path) as yard, writing(yard) as files:
        job = await submitted(yard, asking(a_batch("echo one", "echo two"), f"{tmp_path}/%t/file"))
        await yard.ended(job)
        await until(lambda: SLOW in files.missing(job))
        assert files.missing(job, 1).startswith(f"the output of the task is not in its file ({SLOW}: {tmp_path}/1)")
        assert SLOW not in files.missing(job, 0)
        hanging.answers.set()
        told = await files.written(job)
        assert told.startswith("the output of task 0 is not in its file")
        assert SLOW not in told
        assert (tmp_path / "1/file").read_text() == "two\n"


async def test_a_server_that_is_started_while_a_directory_hangs_writes_its_files_later(
    tmp_path: Path, hanging: Hanging
) -> None:
    async with a_yard(tmp_path) as yard:
        async with writing(yard) as files:
            job = await submitted(yard, asking(a_batch("echo one"), f"{tmp_path}/hangs/%t"))
            await yard.ended(job)
            other = await submitted(yard, asking(a_batch("echo two"), f"{tmp_path}/fine"))
            await yard.ended(other)
            await files.written(other)
        assert not (tmp_path / "hangs").exists()
        hanging.answers.set()
        async with writing(yard) as files, asyncio.timeout(PATIENCE_SECONDS):
            assert not await files.written(job), "told as soon as it is there"
        assert (tmp_path / "hangs/0").read_text() == "one\n"


async def test_who_ends_while_a_directory_hangs_is_told_after_a_while(
    tmp_path: Path, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_files, "WAIT_SECONDS", 1.0)
    async with a_yard(tmp_path) as yard, writing(yard) as files:
        job = await submitted(yard, asking(a_batch("echo one"), f"{tmp_path}/hangs/%t"))
        await yard.ended(job)
        await until(lambda: files.missing(job))
        assert f"({SLOW}: {tmp_path}/hangs); it is tried again, and `yard logs` has it" in await files.written(job)


async def test_a_file_system_that_is_away_holds_few_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job has a directory of its own on it."""
    monkeypatch.setattr(output_threads, "PATIENT_SECONDS", 0.01)
    monkeypatch.setattr(output_threads, "mount_points", lambda: ["/", "/away"])
    answers, freed = threading.Event(), asyncio.Event()
    begun: list[str] = []
    done: list[Work] = []

    def free(works: Any) -> None:
        done.extend(works)
        freed.set()

    def hang(name: str) -> None:
        begun.append(name)
        assert answers.wait(120)

    threads = OutputThreads(free)
    away = [Work(Path(f"/away/{number}/file"), partial(hang, str(number))) for number in range(20)]
    here = Work(Path("/here/file"), lambda: None)
    try:
        refused = await threads.carry_out([*away, here])
        assert (len(begun), len(refused), here.failure) == (4, 16, "")
        late = Work(Path("/away/20/file"), lambda: None)
        assert await threads.carry_out([late]) == [late]
    finally:
        answers.set()
    while len(done) < 4:
        await freed.wait()
        freed.clear()
    assert not await threads.carry_out([late])
    assert late.failure == ""


def test_a_directory_is_on_the_file_system_that_is_mounted_nearest_above_it() -> None:
    mounts = ["/", "/home", "/home/a b", "/home"]
    places = {"/homes/x": "/", "/home/x": "/home", "/home/a b/c": "/home/a b", "/home/a b": "/home/a b"}
    assert {place: mount_of(place, mounts) for place in places} == places
    assert mount_points()[0] == "/"
