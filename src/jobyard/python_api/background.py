"""Background thread: what is read of a yard while the program goes on? Each in a daemon thread, which keeps nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def begin(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Runs it beside the caller. A program that ends does not wait for it."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            found = function(*args, **kwargs)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(found)

    threading.Thread(target=run, name="yard", daemon=True).start()
    return future


async def awaited(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for an event loop, which goes on meanwhile. Who is cancelled leaves the thread to end by itself."""
    return await asyncio.wrap_future(begin(function, *args, **kwargs))


async def each(make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """What an iterator brings, read in a thread."""
    loop, queue, is_left = asyncio.get_running_loop(), asyncio.Queue[tuple[T] | BaseException | None](), False

    def put(item: tuple[T] | BaseException | None) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, item)

    def read() -> None:
        try:
            for item in make():
                if is_left:
                    return
                put((item,))
        except BaseException as error:
            put(error)
        else:
            put(None)

    begin(read)
    try:
        while (item := await queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item[0]
    finally:
        is_left = True
