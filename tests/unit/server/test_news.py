"""A subscriber that reads nothing costs a bounded amount of memory."""

from __future__ import annotations

import asyncio

from jobyard.model.events import AttemptsFinished, Event, Finished
from jobyard.model.task import AttemptId, Outcome
from jobyard.server.news import NEWS_MOST, News


def a_batch_of(attempts: int) -> list[Event]:
    items = tuple(Finished(AttemptId("j", n, 1), Outcome(0.0, 1.0, 0)) for n in range(attempts))
    return [AttemptsFinished(items, at=1.0)]


async def test_a_few_large_batches_cut_as_many_small_ones_do() -> None:
    news, batch = News(), a_batch_of(NEWS_MOST)
    news.offer(1, batch)
    assert not news.is_cut
    news.offer(2, batch)
    assert news.is_cut


async def test_what_waited_for_a_subscriber_that_is_cut_is_let_go() -> None:
    news = News()
    for seq in range(10 * NEWS_MOST):
        news.offer(seq, a_batch_of(1))
    assert news.is_cut
    assert news.qsize() == 1
    assert (await news.get())[1] == []


async def test_who_keeps_up_is_never_cut() -> None:
    news, batch = News(), a_batch_of(NEWS_MOST - 1)
    for seq in range(100):
        news.offer(seq, batch)
        assert await news.get() == (seq, batch)
    assert not news.is_cut


async def test_one_that_waits_for_news_is_woken_when_it_is_cut() -> None:
    news = News()
    waiting = asyncio.create_task(news.get())
    await asyncio.sleep(0)
    for seq in range(3):
        news.offer(seq, a_batch_of(NEWS_MOST))
    async with asyncio.timeout(60):
        await waiting
    assert news.is_cut
