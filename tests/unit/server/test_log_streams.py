"""Output as a stream that can be cut anywhere and goes on exactly there."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobyard.errors import NotFound, UserError
from jobyard.model.job import State
from jobyard.model.task import AttemptId
from jobyard.server import logs
from jobyard.server.lifetime import Lifetime
from jobyard.server.log_request import LogRequest
from jobyard.server.logs import LogStream, Reader, last_line, open_log, tail_lines
from jobyard.server.ordered_logs import OrderedLogStream
from jobyard.server.routes.logs import _pieces
from jobyard.wire.views import LogChunk
from tests.unit.server.running import RunningYard, a_yard
from tests.waiting import PATIENCE_SECONDS

DEEP = base64.b64encode(b"[" * 5000).decode()  # Python counts this deep no more
ODD_OFFSETS = ["1e999", "1e30", "1e0", "-1", "9" * 30, '"1"', "true"]
TEXT = "grün 😀 \u2028 漢字\n"


def cursor_of(reading: dict[str, dict[str, int]]) -> str:
    return base64.b64encode(json.dumps([{}, reading, False]).encode()).decode()


def wanted(
    yard: RunningYard, job: str, task: str = "", attempt: int | None = None, tail: int | None = None
) -> LogRequest:
    return LogRequest(yard.job(job), task, attempt, ["out", "err"], tail)


async def read_all(stream: LogStream) -> list[tuple[str, int, str, str]]:
    return [(chunk.task, chunk.attempt, chunk.stream, chunk.data) async for chunk in stream.chunks()]


async def tail_of(path: Path, lines: int) -> str:
    reader = Reader(path)
    await reader.skip_to_tail(lines)
    return "".join(reader.read(final=True))


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
async def test_what_a_task_puts_in_the_place_of_its_log_is_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log"
    (tmp_path / "secret").write_text("none of its business")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "secret")
    else:
        path.mkdir()
    assert await tail_of(path, 1) == ""
    with pytest.raises(FileNotFoundError):
        open_log(path)


def test_a_reader_hands_out_whole_characters_only(tmp_path: Path) -> None:
    path = tmp_path / "log"
    data = TEXT.encode()
    reader = Reader(path)
    text = ""
    for end in range(1, len(data) + 1):
        path.write_bytes(data[:end])
        for piece in reader.read():
            piece.encode()  # raises on half a character
            text += piece
        assert reader.offset == len(text.encode())
    assert text == TEXT


@pytest.mark.parametrize("cut", range(1, len(TEXT.encode())))
def test_a_reader_resumes_at_its_offset_also_inside_a_character(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(TEXT.encode()[:cut])
    first = Reader(path)
    before = "".join(first.read())
    path.write_bytes(TEXT.encode())
    second = Reader(path)
    second.offset = first.offset
    assert before + "".join(second.read(final=True)) == TEXT


def test_bytes_that_are_no_text_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\xff\xfe\xf0\x9f\n\xe4")
    text = "".join(Reader(path).read(final=True))
    assert text.encode("utf-8", "surrogateescape") == b"a\xff\xfe\xf0\x9f\n\xe4"


@pytest.mark.parametrize(("lines", "shown"), [(0, ""), (1, "c\n"), (2, "b\nc\n"), (3, "a\nb\nc\n"), (99, "a\nb\nc\n")])
async def test_a_tail_has_as_many_lines_as_asked(tmp_path: Path, lines: int, shown: str) -> None:
    path = tmp_path / "log"
    path.write_text("a\nb\nc\n")
    assert await tail_of(path, lines) == shown


async def test_a_tail_counts_an_unfinished_last_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a\nb\nc")
    assert await tail_of(path, 1) == "c"
    assert await tail_of(path, 2) == "b\nc"


async def test_all_that_was_written_is_in_the_stream(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("echo one; echo oh >&2", "echo two", "true")
        await yard.ended(job)
        found = await read_all(LogStream(yard.loop, wanted(yard, job), follow=False))
        assert sorted(found) == [("0", 1, "err", "oh\n"), ("0", 1, "out", "one\n"), ("1", 1, "out", "two\n")]


async def test_following_brings_what_comes_until_the_job_ends(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("echo one; sleep 0.15; echo two; exit 1", "sleep 0.05; echo three", retries=1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            found = await read_all(LogStream(yard.loop, wanted(yard, job), follow=True))
        assert yard.job(job).is_final
        per_attempt = {(task, attempt): "" for task, attempt, _, _ in found}
        for task, attempt, _, data in found:
            per_attempt[task, attempt] += data
        assert per_attempt == {("0", 1): "one\ntwo\n", ("0", 2): "one\ntwo\n", ("1", 1): "three\n"}


async def test_a_cursor_goes_on_exactly_wherever_the_stream_was_cut(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit(*[f"echo {number}; echo {number} >&2" for number in range(6)])
        await yard.ended(job)
        whole = await read_all(LogStream(yard.loop, wanted(yard, job), follow=False))
        for cut in range(len(whole) + 1):
            stream = LogStream(yard.loop, wanted(yard, job), follow=False)
            chunks = stream.chunks()
            before = []
            for _ in range(cut):
                chunk = await anext(chunks)
                before.append((chunk.task, chunk.attempt, chunk.stream, chunk.data))
            cursor = stream.cursor()
            after = await read_all(LogStream(yard.loop, wanted(yard, job), follow=False, cursor=cursor))
            assert before + after == whole


async def test_a_cursor_resumes_inside_a_file_that_grows_by_half_characters(tmp_path: Path) -> None:
    data = TEXT.encode()
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("sleep 60")
        await yard.running(job)
        path = yard.machine.log_path(AttemptId(job, 0, 1), "out")
        cursor, text = "", ""
        for end in range(1, len(data) + 1):
            _write(path, data[:end])
            stream = LogStream(yard.loop, wanted(yard, job), follow=True, cursor=cursor)
            async for chunk in _what_is_there(stream):
                text += chunk
            cursor = stream.cursor()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(text) < len(TEXT):  # what a busy machine has not brought within a moment
                stream = LogStream(yard.loop, wanted(yard, job), follow=True, cursor=cursor)
                text += "".join([chunk async for chunk in _what_is_there(stream)])
                cursor = stream.cursor()
        assert text == TEXT
        await yard.cancel(job, force=True)
        await yard.ended(job)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


async def _what_is_there(stream: LogStream) -> AsyncIterator[str]:
    """Of a stream that follows: what comes within a moment."""
    chunks = stream.chunks()
    while True:
        task = asyncio.ensure_future(anext(chunks))
        done, _ = await asyncio.wait({task}, timeout=0.02)
        if not done:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return
        yield task.result().data


async def test_one_task_or_one_attempt_can_be_asked_for(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("echo a; exit 1", "echo b", retries=1)
        await yard.ended(job)
        assert await read_all(LogStream(yard.loop, wanted(yard, job, "1"), follow=True)) == [("1", 1, "out", "b\n")]
        first = await read_all(LogStream(yard.loop, wanted(yard, job, "0", attempt=1), follow=False))
        assert first == [("0", 1, "out", "a\n")]
        with pytest.raises(NotFound, match="has no attempt 9"):
            wanted(yard, job, "0", attempt=9)
        with pytest.raises(NotFound, match="job 1 has no attempt 3; it was tried 2 times"):
            wanted(yard, job, "", attempt=3)
        with pytest.raises(NotFound, match="no task '7'"):
            wanted(yard, job, "7")


@pytest.mark.parametrize("cursor", ["nonsense", "e30=", "W10=", "W3t9LHsieCI6e319XQ==", "\xff", DEEP])
async def test_a_cursor_of_somebody_else_is_refused(tmp_path: Path, cursor: str) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("true")
        with pytest.raises(UserError, match="log cursor"):
            LogStream(yard.loop, wanted(yard, job), follow=False, cursor=cursor)
        await yard.ended(job)


async def test_a_cursor_cannot_name_files_of_other_jobs(tmp_path: Path) -> None:
    """It comes from a client: only attempts of the job that was asked for may be in it."""
    async with a_yard(tmp_path) as yard:
        secret = await yard.submit("echo hush")
        asked = await yard.submit("echo mine")
        await yard.ended(secret)
        await yard.ended(asked)
        forged = cursor_of({f"{secret}.0.1": {"out": 1}})
        with pytest.raises(UserError, match="log cursor"):
            LogStream(yard.loop, wanted(yard, asked), follow=True, cursor=forged)


@pytest.mark.parametrize("ranges", ["[[Infinity,5]]", "[[3,4],[1,2]]", "[[1,2,3]]", "[[1e3,2e3]]"])
async def test_a_cursor_with_ranges_that_cannot_be_is_refused(tmp_path: Path, ranges: str) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("true")
        await yard.ended(job)
        forged = base64.b64encode(b'[{"1":%s},{},true]' % ranges.encode()).decode()
        with pytest.raises(UserError, match="log cursor"):
            LogStream(yard.loop, wanted(yard, job), follow=False, cursor=forged)


async def test_a_cursor_with_an_offset_that_cannot_be_is_refused(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("true")
        await yard.ended(job)
        for offset in ODD_OFFSETS:
            forged = base64.b64encode(f'[{{}},{{"{job}.0.1":{{"out":{offset}}}}},true]'.encode()).decode()
            with pytest.raises(UserError, match="log cursor"):
                LogStream(yard.loop, wanted(yard, job), follow=False, cursor=forged)


async def test_a_cursor_names_no_attempt_that_never_ran(tmp_path: Path) -> None:
    """20,000 of them were opened ten times a second."""
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("true")
        await yard.ended(job)
        for attempt in (0, 2):
            forged = cursor_of({f"{job}.0.{attempt}": {"out": 1}})
            with pytest.raises(UserError, match="log cursor"):
                LogStream(yard.loop, wanted(yard, job), follow=True, cursor=forged)


async def test_who_follows_many_tasks_lets_others_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOOKS_AT_ONCE", 5)
    looks, in_one_turn = [0], list[int]()
    read = LogStream._read

    def counted(stream: LogStream, key: AttemptId, *, final: bool) -> Iterator[LogChunk]:
        looks[0] += 1
        return read(stream, key, final=final)

    monkeypatch.setattr(LogStream, "_read", counted)
    async with a_yard(tmp_path) as yard:
        job = await yard.submit(*["sleep 60"] * 20)
        await yard.until(lambda: yard.job(job).tasks.counts[State.RUNNING] == 20)
        cursor = cursor_of({f"{job}.{number}.1": {"out": 1} for number in range(20)})
        stream = LogStream(yard.loop, wanted(yard, job), follow=True, cursor=cursor)
        following = asyncio.ensure_future(anext(stream.chunks()))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum(in_one_turn) < 100:
                before = looks[0]
                await asyncio.sleep(0)
                in_one_turn.append(looks[0] - before)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await yard.cancel(job, force=True)
    assert max(in_one_turn) <= 5


async def test_a_chunk_costs_the_cursor_its_own_attempt_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit(*["echo 1"] * 20)
        await yard.ended(job)
        cursor = cursor_of({f"{job}.{number}.1": {"out": 1} for number in range(20)})
        stream = LogStream(yard.loop, wanted(yard, job), follow=False, cursor=cursor)
        written = list[str]()

        def name_of(key: AttemptId) -> str:
            written.append(f"{key.job}.{key.task}.{key.number}")
            return written[-1]

        monkeypatch.setattr(AttemptId, "__str__", name_of)
        assert len([stream.cursor() async for _ in stream.chunks()]) == 20
        monkeypatch.undo()
        assert len(written) < 5 * 20  # not of all twenty for each chunk


async def test_the_last_lines_are_those_of_the_errors(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("echo out; echo bad >&2; exit 1", "echo only-out; exit 1", "exit 1")
        await yard.ended(job)
        lines = [tail_lines(yard.loop, AttemptId(job, number, 1)) for number in range(3)]
        assert lines == [("bad",), ("only-out",), ()]


def test_of_a_progress_bar_the_last_lines_have_its_end_only(tmp_path: Path) -> None:
    loop = SimpleNamespace(executors=[SimpleNamespace(log_path=lambda attempt, stream: tmp_path / stream)], mirror=None)
    bar = "\r".join(f"{percent:3}%|###" for percent in range(100))
    (tmp_path / "err").write_text(f"loading\r\n\r{bar}\r\nValueError: no such file\n")
    lines = tail_lines(loop, AttemptId("j1", 0, 1))  # type: ignore[arg-type]
    assert lines == ("loading", " 99%|###", "ValueError: no such file")


def test_the_last_line_is_what_was_written_last_to_either_stream(tmp_path: Path) -> None:
    """A progress bar writes over itself, and ends no line."""
    loop = SimpleNamespace(executors=[SimpleNamespace(log_path=lambda attempt, stream: tmp_path / stream)], mirror=None)
    attempt = AttemptId("j1", 0, 1)
    seen = [last_line(loop, attempt)]  # type: ignore[arg-type]
    for at, (stream, text) in enumerate((("err", "warning\n"), ("out", "a\nloss 1\n\n"), ("err", " 10%\r 20%")), 1):
        (tmp_path / stream).write_text(text)
        os.utime(tmp_path / stream, (at, at))
        seen.append(last_line(loop, attempt))  # type: ignore[arg-type]
    assert seen == ["", "warning", "loss 1", " 20%"]


async def test_a_tail_is_of_what_is_there_and_not_of_what_begins_later(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("echo 1; echo 2; echo 3; sleep 2; exit 1", retries=1)
        await yard.running(job)
        path = yard.machine.log_path(AttemptId(job, 0, 1), "out")
        while not path.exists() or path.read_bytes() != b"1\n2\n3\n":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        chunks = LogStream(yard.loop, wanted(yard, job, tail=1), follow=True).chunks()
        async with asyncio.timeout(PATIENCE_SECONDS):
            found = [chunk async for chunk in chunks]
        assert "".join(chunk.data for chunk in found if chunk.attempt == 1) == "3\n"
        assert "".join(chunk.data for chunk in found if chunk.attempt == 2) == "1\n2\n3\n"


async def test_the_ordered_output_of_all_tasks_may_be_their_last_lines(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("echo 1; echo 2", "echo 3; echo 4")
        await yard.ended(job)
        found = await read_all(OrderedLogStream(yard.loop, wanted(yard, job, tail=1), follow=False))
        assert [data for _, _, _, data in found] == ["2\n", "4\n"]


async def test_a_cursor_names_only_what_was_read(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit(*["sleep 60"] * 20)
        await yard.until(lambda: yard.job(job).tasks.counts[State.RUNNING] == 20)
        stream = LogStream(yard.loop, wanted(yard, job), follow=True)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(stream._open) < 20:  # a busy machine takes more than a moment
                assert [text async for text in _what_is_there(stream)] == []
        assert len(stream._open) == 20
        assert len(stream.cursor()) < 40
        await yard.cancel(job, force=True)


async def test_a_stream_that_does_not_keep_up_ends_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobyard.server.event_feed.WAITING_MOST", 1)
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("echo one; sleep 60", "sleep 60")
        await yard.running(job)
        stream = LogStream(yard.loop, wanted(yard, job), follow=True)
        chunks = stream.chunks()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await anext(chunks)).data == "one\n"
            await yard.ended(await yard.submit("true"))
            assert [chunk async for chunk in chunks] == []
        assert stream.is_cut
        await yard.cancel(job, force=True)


async def test_raw_bytes_of_a_file_that_grows_are_those_of_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 200_000)
    yard: Any = SimpleNamespace(lifetime=Lifetime(None, lambda: False))
    seen = b""
    async for piece in _pieces(yard, path):
        with path.open("ab") as file:
            file.write(b"y" * 1000)
        seen += piece
    assert seen == b"x" * 200_000


async def test_ordered_output_comes_task_by_task_once_all_before_have_ended(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        first = "sleep 0.2; echo first"
        job = await yard.submit(first, "echo second; echo oh >&2", "true", "exit 3", "echo last")
        stream = OrderedLogStream(yard.loop, wanted(yard, job), follow=False)
        async with asyncio.timeout(60):
            found = await read_all(stream)
        assert [(task, name, data) for task, _, name, data in found] == [
            ("0", "out", "first\n"),
            ("1", "out", "second\n"),
            ("1", "err", "oh\n"),
            ("4", "out", "last\n"),
        ]
        assert yard.job(job).is_final
        again = OrderedLogStream(yard.loop, wanted(yard, job), follow=False, cursor=stream.cursor())
        assert await read_all(again) == []


async def test_ordered_output_of_a_task_that_never_ran_is_nothing(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("sleep 60", "sleep 60", cpus=4.0)
        await yard.cancel(job, force=True)
        async with asyncio.timeout(60):
            assert await read_all(OrderedLogStream(yard.loop, wanted(yard, job), follow=False)) == []


async def test_several_tasks_and_only_those_that_failed_can_be_asked_for(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit(*[f"echo {number}; exit {number % 2}" for number in range(6)])
        await yard.ended(job)
        several = await read_all(LogStream(yard.loop, wanted(yard, job, "0,2-3,5"), follow=True))
        assert [task for task, *_ in several] == ["0", "2", "3", "5"]
        request = LogRequest(yard.job(job), "2-5", None, ["out"], None, only_failed=True)
        assert [task for task, *_ in await read_all(LogStream(yard.loop, request, follow=False))] == ["3", "5"]


async def test_following_some_tasks_ends_with_them(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("echo a", "sleep 60", "echo c")
        async with asyncio.timeout(60):
            found = await read_all(LogStream(yard.loop, wanted(yard, job, "0,2"), follow=True))
        assert sorted(task for task, *_ in found) == ["0", "2"]
        await yard.cancel(job, force=True)


async def test_only_what_comes_while_following_has_a_time(tmp_path: Path) -> None:
    async with a_yard(tmp_path) as yard:
        job = await yard.submit("echo one; sleep 0.5; echo two")
        log = yard.machine.log_path(AttemptId(job, 0, 1), "out")
        while not log.exists() or not log.read_bytes():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        chunks = LogStream(yard.loop, wanted(yard, job), follow=True).chunks()
        async with asyncio.timeout(60):
            there = await anext(chunks)
            came = [chunk async for chunk in chunks]
        assert (there.data, there.at) == ("one\n", None)
        assert [(chunk.data, chunk.at is None) for chunk in came] == [("two\n", False)]
