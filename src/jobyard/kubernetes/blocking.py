"""Blocking API client: how do callers without an event loop ask a cluster? Through a loop on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Iterator
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from jobyard.kubernetes.api import Api
from jobyard.kubernetes.call_limits import CallLimits
from jobyard.model.node import ClusterConfig

Answer = TypeVar("Answer")
_END = object()
END_SECONDS = 10.0  # how long a call that a signal interrupted may take to end


class BlockingApi:
    """One Api for several threads at once. Creating it connects nowhere. Its creator closes it."""

    def __init__(self, config: ClusterConfig, limits: CallLimits) -> None:
        """Raises UserError where there is no way to the cluster."""
        opened: Future[Api] = Future()
        self._thread = threading.Thread(target=self._live, args=(config, limits, opened), daemon=True, name="cluster")
        self._thread.start()
        self.api = opened.result()

    def run(self, work: Awaitable[Answer]) -> Answer:
        """A call that a signal interrupts is ended first, so that the next one (the removal of a pod) runs alone."""
        asked = _answer(work)
        try:
            return asyncio.run_coroutine_threadsafe(asked, self._loop).result()
        except (KeyboardInterrupt, SystemExit):
            wait([asyncio.run_coroutine_threadsafe(_end(asked), self._loop)], END_SECONDS)
            raise

    def each(self, items: AsyncGenerator[Answer, None]) -> Iterator[Answer]:
        """The items as they come. A caller that stops early ends the stream."""
        item: Any
        try:
            while (item := self.run(anext(items, _END))) is not _END:
                yield item
        finally:
            self.run(items.aclose())

    def close(self) -> None:
        """Repeatable."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._is_over.set)
            self._thread.join()

    def _live(self, config: ClusterConfig, limits: CallLimits, opened: Future[Api]) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._serve(config, limits, opened))

    async def _serve(self, config: ClusterConfig, limits: CallLimits, opened: Future[Api]) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        try:
            api = await Api.connect(config, limits)
        except BaseException as error:
            opened.set_exception(error)
            return
        opened.set_result(api)
        keeping = asyncio.create_task(api.keep_identity())
        await self._is_over.wait()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await api.close()


async def _answer(work: Awaitable[Answer]) -> Answer:
    return await work


async def _end(work: Coroutine[Any, Any, Any]) -> None:
    """A signal may have come before the task was stored, so it is searched for."""
    tasks = [task for task in asyncio.all_tasks() if task.get_coro() is work]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
