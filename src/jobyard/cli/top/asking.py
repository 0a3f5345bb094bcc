"""Asking a yard from `yard top`: a call waits in a thread that nobody has to wait for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[[], T]) -> T:
    """As `asyncio.to_thread`, but the program ends without the thread: a server that is away keeps it for a minute."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # it cannot be cancelled any more, only left alone

    def ask() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=ask, name="ask", daemon=True).start()
    return await asyncio.wrap_future(answer)
