"""News: what has happened that one subscriber has not read yet? Bounded by what it weighs, not by how often it came."""

from __future__ import annotations

import asyncio

from jobyard.model.events import Event

NEWS_MOST = 20_000  # events and attempts that wait for one subscriber: some 20 MB, or two seconds of the busiest yard


class News(asyncio.Queue[tuple[int, list[Event]]]):
    """Journalled batches for one subscriber. Once it is cut, some are missing: its stream ends, a client resumes."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = False
        self._weight = 0

    def offer(self, seq: int, events: list[Event]) -> None:
        """One more batch; where too much waits already, nothing is kept any more and the subscriber is cut."""
        if self.is_cut:
            return
        if self._weight < NEWS_MOST:
            self.put_nowait((seq, events))
            return
        # Who does not read its socket may stay for hours: what waited for it must not. One empty batch wakes it.
        self.is_cut = True
        while not self.empty():
            self.get_nowait()
        self.put_nowait((seq, []))

    def _put(self, item: tuple[int, list[Event]]) -> None:
        self._weight += _weight(item[1])
        super()._put(item)

    def _get(self) -> tuple[int, list[Event]]:
        item = super()._get()
        self._weight -= _weight(item[1])
        return item


def _weight(events: list[Event]) -> int:
    """One for each event and for each attempt in it. A job counts no more than that: the state holds it anyway."""
    return sum(1 + len(getattr(event, "items", ())) for event in events)
