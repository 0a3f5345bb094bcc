"""How are several streams read at once? Each in a thread of its own, all into one queue."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ended:
    """A source has no more items."""

    source: str


@dataclass(frozen=True)
class Broken:
    """A source raised."""

    source: str
    error: BaseException


class Feed:
    """Items in the order they came. `put` may be called from a signal handler (SimpleQueue allows it)."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, item: Any) -> None:
        self._items.put(item)

    def read(self, source: str, items: Callable[[], Iterable[Any]]) -> None:
        """Read `items()` in a thread that does not keep the program alive; then put Ended or Broken."""

        def work() -> None:
            try:
                for item in items():
                    self.put(item)
            except BaseException as error:
                self.put(Broken(source, error))
            else:
                self.put(Ended(source))

        threading.Thread(target=work, name=f"feed-{source}", daemon=True).start()

    def next(self, seconds: float) -> Any:
        """The next item, or None when none came within `seconds`."""
        try:
            return self._items.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
