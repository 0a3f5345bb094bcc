"""Subscription: which journalled events has one subscriber not read yet? Bounded by their number, then cut off."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from jobyard.model.events import Event

# Events and attempts that wait for one subscriber: some 20 MB, or two seconds of the busiest yard.
WAITING_MOST = 20_000


class Subscription(asyncio.Queue[tuple[int, list[Event]]]):
    """Journalled batches for one subscriber. Once it is cut off, its stream ends and the client resumes."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = False
        self._weight = 0

    def offer(self, seq: int, events: list[Event]) -> None:
        """One more batch; where too much waits already, all of it is dropped and the subscriber is cut off."""
        if self.is_cut:
            return
        if self._weight < WAITING_MOST:
            self.put_nowait((seq, events))
            return
        # A client that does not read its socket may stay for hours: drop its batches. One empty batch wakes it.
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


class EventFeed:
    """What the yard has written down, for whoever subscribes; and a sign at every change."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self._changed = asyncio.Event()

    def subscribe(self) -> Subscription:
        """Every journalled batch from now on, until `unsubscribe`. A subscriber that does not keep up is cut off."""
        subscription = Subscription()
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)

    async def change(self) -> None:
        """Returns after the next change of anything."""
        await self._changed.wait()

    async def moment(self) -> None:
        """Returns after the next change, or soon: links are lost and made again without an event."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await self.change()

    def publish(self, seq: int, events: list[Event]) -> None:
        """A round is over; `events` are those that it wrote down, up to row `seq`."""
        self._changed.set()
        self._changed = asyncio.Event()
        if events:
            for subscription in list(self._subscriptions):
                subscription.offer(seq, events)
                if subscription.is_cut:
                    self.unsubscribe(subscription)


def _weight(events: list[Event]) -> int:
    """One for each event and for each attempt in it. A job counts no more than that: the state holds it anyway."""
    return sum(1 + len(getattr(event, "items", ())) for event in events)
