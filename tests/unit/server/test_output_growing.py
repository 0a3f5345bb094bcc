"""Files of `--output` grow while their tasks run, for whoever follows them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TextIO

import pytest

from jobyard.model.task import AttemptId
from jobyard.server import output_growing
from jobyard.server.logs import log_path
from jobyard.server.output_writing import Grown, grow_output, write_output
from tests.unit.server.running import RunningYard, a_batch, a_yard
from tests.unit.server.test_output_files import asking, submitted, until, writing
from tests.unit.server.test_output_writing import anothers

RUNS = "echo one; sleep 3600"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_growing, "LOOK_SECONDS", 0.01)


def write_more(yard: RunningYard, job: str, text: str, number: int = 1) -> None:
    with log_path(yard.loop, AttemptId(job, 0, number), "out").open("a") as log:
        log.write(text)


def follower(path: Path) -> TextIO:
    """As `tail -f`: it stays with the file that is there now."""
    return path.open()


async def test_a_file_has_what_its_task_has_written_while_it_runs_and_who_follows_it_sees_the_end(
    tmp_path: Path,
) -> None:
    target = tmp_path / "out/0.txt"
    async with a_yard(tmp_path) as yard, writing(yard) as files:
        job = await submitted(yard, asking(a_batch(RUNS), f"{tmp_path}/out/%t.txt"))
        await until(lambda: target.exists() and target.read_text() == "one\n")
        with follower(target) as tail:
            write_more(yard, job, "two\n")
            await until(lambda: target.read_text() == "one\ntwo\n")
            write_more(yard, job, "three\n")
            await yard.cancel(job)
            await yard.ended(job)
            assert not await files.written(job)
            assert tail.read() == "one\ntwo\nthree\n"
    assert os.listdir(tmp_path / "out") == ["0.txt"]


async def test_each_stream_grows_into_its_own_file(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard, writing(yard):
        spec = asking(a_batch("echo one; echo two >&2; sleep 3600"), f"{tmp_path}/o", f"{tmp_path}/e")
        job = await submitted(yard, spec)
        out, err = tmp_path / "o", tmp_path / "e"
        await until(lambda: out.exists() and err.exists() and (out.read_text(), err.read_text()) == ("one\n", "two\n"))
        await yard.cancel(job)
        await yard.ended(job)


async def test_a_further_attempt_empties_the_file_as_slurm_does(tmp_path: Path) -> None:
    target = tmp_path / "0"
    async with a_yard(tmp_path) as yard, writing(yard) as files:
        spec = a_batch(RUNS, retries=1)
        job = await submitted(yard, asking(spec, f"{tmp_path}/%t"))
        await until(lambda: target.exists() and target.read_text() == "one\n")
        write_more(yard, job, "of the first attempt\n")
        await until(lambda: target.read_text() == "one\nof the first attempt\n")
        same = target.stat().st_ino
        yard.machine.attempts[AttemptId(job, 0, 1)].signals.put_nowait(signal.SIGKILL)
        await until(lambda: target.read_text() == "one\n")
        write_more(yard, job, "of the second\n", 2)
        await until(lambda: target.read_text() == "one\nof the second\n")
        await yard.cancel(job)
        await yard.ended(job)
        assert not await files.written(job)
        assert (target.read_text(), target.stat().st_ino) == ("one\nof the second\n", same)


async def test_a_server_that_comes_later_goes_on_with_the_file_that_is_there(tmp_path: Path) -> None:
    target = tmp_path / "0"
    async with a_yard(tmp_path) as yard:
        async with writing(yard):
            job = await submitted(yard, asking(a_batch(RUNS), f"{tmp_path}/%t"))
            await until(lambda: target.exists() and target.read_text() == "one\n")
        with follower(target) as tail:
            async with writing(yard) as files:
                write_more(yard, job, "two\n")
                await until(lambda: target.read_text() == "one\ntwo\n")
            write_more(yard, job, "three\n")
            await yard.cancel(job)
            await yard.ended(job)
            async with writing(yard) as files:
                assert not await files.written(job)
            assert tail.read() == "one\ntwo\nthree\n"


async def test_a_file_that_somebody_has_changed_is_left_alone_until_the_task_has_ended(tmp_path: Path) -> None:
    target = tmp_path / "0"
    async with a_yard(tmp_path) as yard, writing(yard) as files:
        job = await submitted(yard, asking(a_batch(RUNS), f"{tmp_path}/%t"))
        await until(lambda: target.exists() and target.read_text() == "one\n")
        target.write_text("the users own")
        write_more(yard, job, "two\n")
        other = await submitted(yard, asking(a_batch(RUNS), f"{tmp_path}/other"))
        await until(lambda: (tmp_path / "other").exists())
        assert target.read_text() == "the users own"
        await yard.cancel(job)
        await yard.ended(job)
        assert not await files.written(job)
        assert target.read_text() == "one\ntwo\n"
        await yard.cancel(other)
        await yard.ended(other)


async def test_nothing_is_kept_of_tasks_that_have_ended(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard, writing(yard) as files:
        job = await submitted(yard, asking(a_batch(RUNS, "echo two"), f"{tmp_path}/%t"))
        await until((tmp_path / "0").exists)
        await yard.cancel(job)
        await yard.ended(job)
        await files.written(job)
        await asyncio.wait_for(files._growing.look(), 60)
        assert (len(files._growing._running), len(files._growing._files)) == (0, 0)


def grown_to(path: Path, text: str, grown: Grown | None, source: Path, *, is_new: bool = False) -> Grown | None:
    source.write_text(text)
    with source.open("rb") as log:
        return grow_output(log, path, grown, is_new=is_new)


def test_a_file_that_grows_stays_the_same_file(tmp_path: Path) -> None:
    target, log = tmp_path / "target", tmp_path / "log"
    target.write_text("of another day")
    grown = None
    for text in ("", "one\n", "one\ntwo\n"):
        grown = grown_to(target, text, grown, log, is_new=grown is None)
        assert target.read_text() == text
        assert grown == Grown(target.stat().st_dev, target.stat().st_ino, len(text))
    before = target.stat().st_ino
    assert grown_to(target, "new\n", grown, log, is_new=True) == Grown(target.stat().st_dev, before, 4)
    assert target.read_text() == "new\n", "of the next attempt"
    write_output([log], target)
    assert target.stat().st_ino == before


def test_a_log_that_its_task_has_emptied_begins_anew_and_the_end_has_it_whole(tmp_path: Path) -> None:
    target, log = tmp_path / "target", tmp_path / "log"
    grown = grown_to(target, "a long line\n", None, log, is_new=True)
    assert grown_to(target, "short\n", grown, log)
    assert target.read_text() == "short\n"
    log.write_text("other\n and more\n")
    write_output([log], target)
    assert target.read_text() == "other\n and more\n", "not what was there with the rest behind it"


def test_only_so_much_comes_at_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.server.output_writing.GROW_BYTES", 5)
    target, log = tmp_path / "target", tmp_path / "log"
    grown = None
    for expected in ("01234", "0123456789", "0123456789ab"):
        grown = grown_to(target, "0123456789ab", grown, log, is_new=grown is None)
        assert target.read_text() == expected


@pytest.mark.parametrize("put", ["symlink", "hard link", "another file", "nothing"])
def test_what_others_put_in_the_place_of_a_growing_file_is_not_written_to(
    put: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, log, victim = tmp_path / "target", tmp_path / "log", tmp_path / "victim"
    grown = grown_to(target, "one\n", None, log, is_new=True)
    victim.write_text("one\n")
    target.unlink()
    if put == "symlink":
        target.symlink_to(victim)
        anothers(target, monkeypatch)
        with pytest.raises(PermissionError):
            grown_to(target, "one\ntwo\n", grown, log)
    else:
        if put == "hard link":
            os.link(victim, target)
        elif put == "another file":
            target.write_text("the users own\n")
        assert grown_to(target, "one\ntwo\n", grown, log) is None
        assert target.exists() == (put != "nothing")
        write_output([log], target)
        assert target.read_text() == "one\ntwo\n"
    assert victim.read_text() == "one\n"
