"""Server-sent events, however they are cut on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest

from jobyard.client import sse
from jobyard.client.sse import events_of
from jobyard.client.transport import Answer
from jobyard.errors import YardError


class Pieces:
    """An answer that comes in these pieces."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces: Iterator[bytes] = iter(pieces)

    def read_some(self) -> bytes:
        return next(self._pieces, b"")


def events(pieces: Iterable[bytes]) -> list[Any]:
    return list(events_of(cast(Answer, Pieces(pieces))))


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_events_are_the_same_wherever_they_are_cut(size: int) -> None:
    data = b"event: log\nid: 7\ndata: gr\xc3\xbcn\r\n\n: still here\n\ndata: a\ndata: b\n\ndata: cut off"
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert events(pieces) == [("log", "grün", "7"), ("message", "a\nb", "7")]


class CountedPiece(bytes):
    """Bytes that know how often they were searched."""

    searched = 0

    def split(self, *args: Any, **words: Any) -> list[bytes]:
        CountedPiece.searched += len(self)
        return super().split(*args, **words)


def test_each_byte_of_a_long_line_is_searched_once() -> None:
    CountedPiece.searched = 0
    pieces = [b"data: ", *[b"x" * 1000] * 2000, b"\n\n"]
    ((_, data, _),) = events(map(CountedPiece, pieces))
    assert data == "x" * 2_000_000
    assert CountedPiece.searched == sum(map(len, pieces))


def test_a_line_without_an_end_is_not_collected_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "LINE_BYTES_MOST", 1 << 20)
    endless = iter(lambda: b"x" * 65536, b"")
    with pytest.raises(YardError, match="a line of more than 1 MiB; check that a yard listens there"):
        events(endless)
