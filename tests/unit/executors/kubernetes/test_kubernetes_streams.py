"""Does all that a container writes get here once, through cuts, refusals and full disks?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.waiting import PATIENCE_SECONDS

from jobyard.backoff import Backoff
from jobyard.errors import Unavailable
from jobyard.executors.kubernetes import streams
from jobyard.executors.kubernetes.streams import CUT_NOTE, LAST_TRIES, LogFile, Stream
from jobyard.kubernetes.api import Api
from jobyard.kubernetes.refusals import Refused

Answer = bytes | Exception


class PlayedApi:
    """Answers each question for a log with the next of these, and then always with the last one."""

    def __init__(self, *answers: tuple[Answer, ...]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def log(self, pod: str, container: str, *, follow: bool) -> AsyncIterator[bytes]:
        self.asked += 1
        pieces = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        for piece in pieces:
            await asyncio.sleep(0)
            if isinstance(piece, Exception):
                raise piece
            yield piece


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BACKOFF", Backoff(0.0, 0.0))


async def read(stream: Stream, api: PlayedApi) -> None:
    """All that there is of a container that has ended."""
    stream.ended()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await stream.run(cast(Api, api))


def a_stream(taken: list[bytes], **more: Any) -> Stream:
    return Stream("pod-1", "main", taken.append, **more)


async def test_after_a_cut_it_is_read_again_and_nothing_is_taken_twice() -> None:
    taken: list[bytes] = []
    stream = a_stream(taken)
    await read(stream, PlayedApi((b"one ", Unavailable("cut")), (b"one tw", b"o three")))
    assert (b"".join(taken), stream.trouble, stream.is_cut) == (b"one two three", "", False)


async def test_what_an_earlier_server_has_written_is_passed_over() -> None:
    taken: list[bytes] = []
    await read(a_stream(taken, size=lambda: 4), PlayedApi((b"one two",)))
    assert taken == [b"two"]


async def test_a_pod_that_is_gone_is_not_asked_again() -> None:
    stream, api = a_stream([]), PlayedApi((Refused(404, "NotFound", "pods pod-1 not found"),))
    await read(stream, api)
    assert (stream.trouble, api.asked) == ("its pod is gone", 1)


async def test_a_node_that_refuses_is_asked_a_few_times() -> None:
    stream, api = a_stream([]), PlayedApi((Refused(500, "InternalError", "no kubelet"),))
    await read(stream, api)
    assert ("no kubelet" in stream.trouble, api.asked) == (True, LAST_TRIES)


async def test_what_did_not_fit_on_our_disk_is_read_again() -> None:
    taken: list[bytes] = []
    full = [OSError("no space left on device")]

    def take(data: bytes) -> None:
        if full:
            raise full.pop()
        taken.append(data)

    stream = Stream("pod-1", "main", take, size=lambda: sum(map(len, taken)))
    await read(stream, PlayedApi((b"one",)))
    assert (taken, stream.trouble) == ([b"one"], "")


async def test_a_node_that_kept_less_than_is_here_is_said_to_have_cut_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEPT_BYTES", 3)
    taken: list[bytes] = []
    await read(a_stream(taken, size=lambda: 9), PlayedApi((b"the end",)))
    assert taken == [CUT_NOTE, b"the end"]


def test_a_log_file_is_appended_to_and_made_when_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "job" / "0.1.out"
    file = LogFile(path)
    assert file.size == 0
    assert not path.exists()
    file.append(b"one ")
    file.close()
    file.append(b"two")
    file.close()
    assert (path.read_bytes(), file.size) == (b"one two", 7)
