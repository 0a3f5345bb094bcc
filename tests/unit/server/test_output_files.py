"""Files that a submitter named for the output of tasks."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobyard.cli.output.summary import summary_lines
from jobyard.errors import UserError
from jobyard.executors.fake import FakeMachine
from jobyard.model.events import AttemptsFinished, Event
from jobyard.model.job import JobSpec
from jobyard.model.staging import StagingSpec
from jobyard.server import event_feed, output_files
from jobyard.server.commands import submit
from jobyard.server.output_files import OutputFiles, target_paths
from jobyard.server.output_note import OutputNote
from jobyard.server.output_writing import write_output
from jobyard.server.queries import shown_job
from jobyard.server.spec_checks import check_spec
from jobyard.wire.requests import SubmitJob
from tests import waiting
from tests.unit.server.running import RunningYard, a_batch, a_yard, an_array
from tests.unit.server.test_damages import damage, row_of


def asking(spec: JobSpec, output: str = "", error: str = "") -> JobSpec:
    return replace(spec, staging=StagingSpec(output=output, error=error))


@asynccontextmanager
async def writing(yard: RunningYard) -> AsyncIterator[OutputFiles]:
    files = OutputFiles(yard.loop, yard.directory)
    running = asyncio.create_task(files.run())
    try:
        yield files
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def submitted(yard: RunningYard, spec: JobSpec) -> str:
    return await yard.loop.ask(submit(SubmitJob(replace(spec, workdir=str(yard.directory)))))


async def test_each_task_has_its_files_when_the_end_of_the_job_is_told(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard, writing(yard) as files:
        spec = asking(a_batch("echo one", "echo two >&2"), f"{tmp_path}/out/%j_%t.txt")
        job = await submitted(yard, spec)
        await yard.ended(job)
        await files.written(job)
        assert (tmp_path / "out/1_0.txt").read_text() == "one\n"
        assert (tmp_path / "out/1_1.txt").read_text() == "two\n", "without --error it has stderr too"
        assert target_paths(yard.job(job), 1).out == tmp_path / "out/1_1.txt"


async def test_stderr_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard, writing(yard) as files:
        spec = asking(a_batch("echo one; echo two >&2"), f"{tmp_path}/o", f"{tmp_path}/%x.err")
        job = await submitted(yard, spec)
        await yard.ended(job)
        await files.written(job)
        assert ((tmp_path / "o").read_text(), (tmp_path / "batch.err").read_text()) == ("one\n", "two\n")


async def test_a_server_that_comes_later_writes_what_ended_without_one(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        async with writing(yard):
            await asyncio.sleep(0)  # it has written down where it is
        job = await submitted(yard, asking(a_batch("echo late"), f"{tmp_path}/%t.out"))
        await yard.ended(job)
        assert not (tmp_path / "0.out").exists()
        async with writing(yard) as files:
            await files.written(job)
            assert (tmp_path / "0.out").read_text() == "late\n"
        (tmp_path / "0.out").write_text("the users own")
        async with writing(yard) as files:
            await files.written(job)
            assert (tmp_path / "0.out").read_text() == "the users own", "what is done is done"


async def test_only_the_attempt_that_counts_is_written(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard, writing(yard) as files:
        spec = asking(a_batch("echo again; exit 3", retries=1), f"{tmp_path}/%t.out")
        job = await submitted(yard, spec)
        await yard.ended(job)
        await files.written(job)
        assert yard.job(job).task(0).attempt == 2
        assert (tmp_path / "0.out").read_text() == "again\n"
        assert not [name for name in os.listdir(tmp_path) if name.startswith(".yard-")]


async def test_what_cannot_be_written_keeps_nobody_else_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "file").write_text("")
    async with a_yard(tmp_path) as yard, writing(yard) as files:
        for pattern in (f"{tmp_path}/%t", f"{tmp_path}/file/below", "/dev/null", f"{tmp_path}/fine"):
            job = await submitted(yard, asking(a_batch("echo one"), pattern))
            await yard.ended(job)
            await files.written(job)
        assert (tmp_path / "fine").read_text() == "one\n"
    told = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert [f"({tmp_path}/0: it is there and is no file)" in told[0], f"({tmp_path}/file/below: " in told[1]] == [
        True
    ] * 2


async def test_a_bug_at_one_file_keeps_no_other_one_back_and_no_server_waits_for_a_file_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = set()

    def write(sources: Any, target: Path) -> None:
        daemons.add(threading.current_thread().daemon)
        if target.name == "wrong":
            raise ValueError("a bug")
        write_output(sources, target)

    monkeypatch.setattr(output_files, "write_output", write)
    async with a_yard(tmp_path) as yard, writing(yard) as files:
        wrong = await submitted(yard, asking(a_batch("echo one"), f"{tmp_path}/wrong"))
        right = await submitted(yard, asking(a_batch("echo two"), f"{tmp_path}/right"))
        for job in (wrong, right):
            await yard.ended(job)
        assert "wrong: a bug" in await files.written(wrong)
        assert await files.written(right) == ""
    assert (tmp_path / "right").read_text() == "two\n"
    assert daemons == {True}


class Disk:
    """Full, or not, for the files and for the note."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = self.is_full_for_notes = False
        write, save = write_output, OutputNote.save

        def write_file(*given: Any) -> None:
            self._check(self.is_full)
            write(*given)

        def save_note(note: OutputNote) -> None:
            self._check(self.is_full_for_notes)
            save(note)

        monkeypatch.setattr(output_files, "AGAIN_SECONDS", 0.01)
        monkeypatch.setattr(output_files, "write_output", write_file)
        monkeypatch.setattr(OutputNote, "save", save_note)

    def _check(self, is_full: bool) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")


async def until(holds: Callable[[], object]) -> None:
    await asyncio.to_thread(waiting.until, holds)


async def test_what_cannot_be_written_is_told_and_written_once_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    disk.is_full = True
    async with a_yard(tmp_path) as yard:
        async with writing(yard) as files:
            job = await submitted(yard, asking(a_batch("echo one", "echo two"), f"{tmp_path}/%t.out"))
            await yard.ended(job)
            told = await files.written(job)
            assert f"tasks 0 to 1 is not in its file ({tmp_path}/" in told
            assert "No space left on device); it is tried again, and `yard logs` has it" in told
            assert files.missing(job, 1).startswith("the output of the task is not in its file")
            view = replace(shown_job(yard.loop, job), not_written=told)
            assert f"yard: {told}" in summary_lines(view, was_streamed=True), "also where all succeeded"
        async with writing(yard) as files:
            assert files.missing(job), "the next server knows of it"
            disk.is_full = False
            await until(lambda: not files.missing(job))
            assert [(tmp_path / f"{task}.out").read_text() for task in (0, 1)] == ["one\n", "two\n"]
            await until(lambda: job not in (tmp_path / "outputs.row").read_text())


async def test_a_disk_that_was_full_for_the_note_too_loses_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with a_yard(tmp_path) as yard:
        async with writing(yard):
            await until((tmp_path / "outputs.row").exists)
            disk.is_full = disk.is_full_for_notes = True
            job = await submitted(yard, asking(a_batch("echo one"), f"{tmp_path}/%t.out"))
            await yard.ended(job)
        disk.is_full = disk.is_full_for_notes = False
        async with writing(yard) as files:
            assert not await files.written(job)
        assert (tmp_path / "0.out").read_text() == "one\n"


async def test_no_row_goes_before_its_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal becomes small again while nobody writes: the server was killed as a task ended, and its successor
    is slow."""
    monkeypatch.setattr("jobyard.server.recording.SNAPSHOT_EVERY_ROWS", 5)
    monkeypatch.setattr("jobyard.server.compaction.BASE_EVERY_ROWS", 5)
    async with a_yard(tmp_path) as yard:
        async with writing(yard):
            await until((tmp_path / "outputs.row").exists)
        job = await submitted(yard, asking(a_batch("echo one"), f"{tmp_path}/%t.out"))
        await yard.ended(job)
        for count in (1, 2, 3):
            while len(yard.journal.base_rows()) < count:
                await yard.ended(await yard.submit("true"))
        async with writing(yard) as files:
            assert not await files.written(job)
        assert (tmp_path / "0.out").read_text() == "one\n"


async def test_who_is_cut_off_from_the_feed_passes_over_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_yard(tmp_path) as yard, writing(yard) as files:
        await files.written(await submitted(yard, asking(a_batch("true"), f"{tmp_path}/first")))
        kept: list[tuple[int, list[Event]]] = []
        publish = yard.loop.feed.publish

        def keep(row: int, events: list[Event]) -> None:
            kept.append((row, events))
            publish(row, [])  # only that something has changed

        monkeypatch.setattr(yard.loop.feed, "publish", keep)
        job = await submitted(yard, asking(a_batch("echo one"), f"{tmp_path}/%t.out"))
        await yard.ended(job)
        monkeypatch.setattr(event_feed, "WAITING_MOST", 1)
        for row, events in kept:
            publish(row, events)
        assert not await files.written(job)
        assert (tmp_path / "0.out").read_text() == "one\n"


async def test_a_damaged_row_keeps_no_other_job_from_its_files(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path / "machine")
    async with a_yard(tmp_path, machine) as yard:
        async with writing(yard):
            await until((tmp_path / "outputs.row").exists)
        bad = await submitted(yard, asking(a_batch("echo bad"), f"{tmp_path}/bad"))
        await yard.ended(bad)
        good = await submitted(yard, asking(a_batch("echo good"), f"{tmp_path}/good"))
        await yard.ended(good)
        row = row_of(yard.engine, AttemptsFinished, bad)
    damage(tmp_path, row)
    async with a_yard(tmp_path, machine) as yard, writing(yard) as files:
        assert not await files.written(good)
        assert (tmp_path / "good").read_text() == "good\n"
        await yard.cancel(bad)
        await yard.ended(bad)
        assert not await files.written(bad)
        assert (tmp_path / "bad").read_text() == "bad\n", "the job was held, and has ended now"


async def test_a_yard_that_can_only_be_read_passes_over_no_row(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        yard.loop.read_only = "it is damaged"
        async with writing(yard):
            await asyncio.sleep(0)
        assert not (tmp_path / "outputs.row").exists()


async def test_a_task_that_is_cancelled_before_its_next_attempt_has_the_file_of_the_last(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard, writing(yard) as files:
        spec = a_batch("echo one; exit 3", retries=3, retry_delay_seconds=600.0)
        job = await submitted(yard, asking(spec, f"{tmp_path}/%t.out"))
        await yard.until(lambda: len(yard.job(job).tasks.delayed) == 1)
        assert not (tmp_path / "0.out").exists()
        await yard.cancel(job)
        await yard.ended(job)
        assert not await files.written(job)
        assert (tmp_path / "0.out").read_text() == "one\n"


@pytest.mark.parametrize("is_slow_first", [True, False])
def test_what_is_slow_is_told_from_what_failed_whichever_came_last(tmp_path: Path, is_slow_first: bool) -> None:
    note = OutputNote(tmp_path, 0)
    for is_slow in (is_slow_first, not is_slow_first):
        note.put("job", int(is_slow), "slow" if is_slow else "denied", is_slow=is_slow)
    note.save()
    for known in (note.missing["job"], OutputNote(tmp_path, 0).missing["job"]):
        assert (list(known.failed), list(known.slow), list(known.tasks)) == ([0], [1], [0, 1])
        assert [known.why(), known.why(0), known.why(1), known.why(2)] == ["denied; slow", "denied", "slow", ""]
    note.put("job", 1, "")
    assert (note.missing["job"].why(), len(note.missing["job"].slow)) == ("denied", 0)
    note.put("job", 0, "")
    assert not note.missing


def test_a_note_of_a_server_before_knows_what_was_missing(tmp_path: Path) -> None:
    (tmp_path / "outputs.row").write_text('{"row": 3, "missing": {"job": [[[0, 4]], "denied"]}}')
    known = OutputNote(tmp_path, 20).missing["job"]
    assert (list(known.tasks), known.why()) == ([0, 1, 2, 3, 4], "denied")


@pytest.mark.parametrize(("noted", "row"), [("17\n", 17), ('{"row": 16, "missing": {}}', 16), ("", 0), ("[]", 0)])
def test_a_note_is_read_whatever_wrote_it(tmp_path: Path, noted: str, row: int) -> None:
    """A damaged one is no reason to pass over a row."""
    (tmp_path / "outputs.row").write_text(noted)
    assert OutputNote(tmp_path, 20).row == row


@pytest.mark.parametrize(
    ("output", "error", "told"),
    [
        ("logs/%t", "", "output: 'logs/%t' is no absolute path"),
        ("/w/one", "", "output: all 3 tasks would write '/w/one'; put %t"),
        ("/w/%t", "/w/%q", "error: %q has no meaning"),
    ],
)
def test_a_pattern_that_cannot_be_is_refused(output: str, error: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        check_spec(asking(an_array("true", 2), output, error))


def test_the_node_is_no_name_where_it_is_not_kept() -> None:
    with pytest.raises(UserError, match="output: %N, the node, is only kept for jobs of up to 1000 tasks"):
        check_spec(asking(an_array("true", 1000), "/w/%N-%t"))
    check_spec(asking(an_array("true", 999), "/w/%N-%t"))
    check_spec(asking(an_array("true", 1000), "/w/%%N-%t"))
