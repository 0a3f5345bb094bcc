"""Feed: how are several streams read at once? Each in a thread of its own, all into one queue."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StreamEnded:
    """A source has no more items."""

    source: str


@dataclass(frozen=True)
class StreamBroken:
    """A source raised."""

    source: str
    error: BaseException


WAITING_MOST = 64  # items that are not taken yet: a piece of output has 64 KiB and more


@dataclass(frozen=True)
class _Read:
    """An item of a source: it takes up room until it is taken."""

    item: Any


class Feed:
    """Items in the order they came. `put` may be called from a signal handler (SimpleQueue allows it).

    A source waits while many of its items are not taken: output that comes faster than a terminal shows it stays with
    the server, not in our memory.
    """

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._room = threading.Semaphore(WAITING_MOST)

    def put(self, item: Any) -> None:
        self._items.put(item)

    def read(self, source: str, items: Callable[[], Iterable[Any]]) -> None:
        """Read `items()` in a thread that does not keep the program alive; then put StreamEnded or StreamBroken."""

        def work() -> None:
            try:
                for item in items():
                    self._room.acquire()
                    self.put(_Read(item))
            except BaseException as error:
                self.put(StreamBroken(source, error))
            else:
                self.put(StreamEnded(source))

        threading.Thread(target=work, name=f"feed-{source}", daemon=True).start()

    def next(self, seconds: float) -> Any:
        """The next item, or None when none came within `seconds`."""
        try:
            item = self._items.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        if isinstance(item, _Read):
            self._room.release()
            return item.item
        return item
