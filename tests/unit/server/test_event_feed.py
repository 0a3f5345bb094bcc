"""A subscriber that reads nothing costs a bounded amount of memory."""

from __future__ import annotations

import asyncio

from jobyard.model.events import AttemptsFinished, Event, Finished
from jobyard.model.task import AttemptId, Outcome
from jobyard.server.event_feed import WAITING_MOST, Subscription
from tests.waiting import PATIENCE_SECONDS


def a_batch_of(attempts: int) -> list[Event]:
    items = tuple(Finished(AttemptId("j", n, 1), Outcome(0.0, 1.0, 0)) for n in range(attempts))
    return [AttemptsFinished(items, at=1.0)]


async def test_a_few_large_batches_cut_as_many_small_ones_do() -> None:
    subscription, batch = Subscription(), a_batch_of(WAITING_MOST)
    subscription.offer(1, batch)
    assert not subscription.is_cut
    subscription.offer(2, batch)
    assert subscription.is_cut


async def test_what_waited_for_a_subscriber_that_is_cut_is_let_go() -> None:
    subscription = Subscription()
    for seq in range(10 * WAITING_MOST):
        subscription.offer(seq, a_batch_of(1))
    assert subscription.is_cut
    assert subscription.qsize() == 1
    assert (await subscription.get())[1] == []


async def test_who_keeps_up_is_never_cut() -> None:
    subscription, batch = Subscription(), a_batch_of(WAITING_MOST - 1)
    for seq in range(100):
        subscription.offer(seq, batch)
        assert await subscription.get() == (seq, batch)
    assert not subscription.is_cut


async def test_one_that_waits_for_news_is_woken_when_it_is_cut() -> None:
    subscription = Subscription()
    waiting = asyncio.create_task(subscription.get())
    await asyncio.sleep(0)
    for seq in range(3):
        subscription.offer(seq, a_batch_of(WAITING_MOST))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await waiting
    assert subscription.is_cut
