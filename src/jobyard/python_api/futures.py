"""Futures of calls: what will each call of a job return? Those of `concurrent.futures`, so its functions take them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, as_completed, wait
from contextlib import contextmanager
from threading import RLock
from typing import Any, TypeVar

from jobyard.python_api.outcomes import Outcome

__all__ = ["YardFuture", "as_completed", "wait"]
T = TypeVar("T")


@contextmanager
def collector_paused() -> Iterator[None]:
    """While many futures are made: each is seven objects, all of them live, and Python's garbage collector would look
    through all of them again and again. Of 100,000 calls that was more than half of what submitting them took."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class YardFuture(Future[T]):
    """One call. `cancel` cancels its task, also one that runs; a task of several calls only with the last of them."""

    def __init__(self, task: str, on_cancel: Callable[[YardFuture[T]], None]) -> None:
        super().__init__()
        self.task = task  # the label of the task that makes this call
        self._on_cancel = on_cancel
        self._deciding = RLock()  # is it cancelled, or has it ended? Callbacks may ask it within

    def cancel(self) -> bool:
        """False where it has ended already."""
        if self._is_cancelled_now():
            self._on_cancel(self)
        return self.cancelled()

    def finish(self, outcome: Outcome) -> None:
        """Nothing for one that has ended or was cancelled."""
        with self._deciding:
            is_ours = not self.done() and self.set_running_or_notify_cancel()
        if is_ours:
            if outcome.error is None:
                self.set_result(outcome.value)
            else:
                self.set_exception(outcome.error)

    def give_up(self) -> None:
        """Its task was cancelled, by whomever."""
        self._is_cancelled_now()

    def _is_cancelled_now(self) -> bool:
        """False where it was before, or has ended. `wait` and `as_completed` hear of it."""
        with self._deciding:
            is_new = not self.cancelled() and super().cancel()
            if is_new:
                self.set_running_or_notify_cancel()
        return is_new

    def __await__(self) -> Generator[Any, None, T]:
        """Who does not await it any more has not cancelled the call."""
        return asyncio.shield(asyncio.wrap_future(self)).__await__()
