"""Several streams in one queue that never holds much."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from tests.waiting import PATIENCE_SECONDS

from jobyard.cli.feed import WAITING_MOST, Feed, StreamEnded


def test_a_source_waits_while_nobody_takes_its_items() -> None:
    feed, taken, is_ahead = Feed(), 0, threading.Event()
    made = 0

    def items() -> Iterator[int]:
        nonlocal made
        for number in range(10 * WAITING_MOST):
            made = number
            if number >= WAITING_MOST:
                is_ahead.set()
            yield number

    feed.read("source", items)
    assert is_ahead.wait(PATIENCE_SECONDS)
    while not isinstance(item := feed.next(PATIENCE_SECONDS), StreamEnded):
        assert item == taken
        assert made <= taken + WAITING_MOST + 1
        taken += 1
    assert taken == 10 * WAITING_MOST


def test_what_is_put_by_hand_needs_no_room() -> None:
    feed, is_full = Feed(), threading.Event()

    def items() -> Iterator[int]:
        yield from range(WAITING_MOST)
        is_full.set()
        yield WAITING_MOST

    feed.read("source", items)
    assert is_full.wait(PATIENCE_SECONDS)
    for _ in range(1000):
        feed.put("signal")
    assert [feed.next(PATIENCE_SECONDS) for _ in range(WAITING_MOST)] == list(range(WAITING_MOST))
