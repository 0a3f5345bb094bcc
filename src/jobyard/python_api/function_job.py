"""Function job: what do the calls of a function return, as tasks of a yard?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import wait
from typing import Any, Generic, TypeVar

from jobyard.client.api import YardClient
from jobyard.errors import UserError
from jobyard.python_api.background import begin
from jobyard.python_api.call_file import CallFile
from jobyard.python_api.collection import collect
from jobyard.python_api.display import Progress
from jobyard.python_api.futures import YardFuture, collector_paused
from jobyard.python_api.job import TICK_SECONDS, Job
from jobyard.wire.views import JobView

T = TypeVar("T")


class FunctionJob(Job, Generic[T]):
    """A function's calls. `futures` has one for each, in the order of the arguments; so do `results` and `for`."""

    def __init__(self, client: YardClient, view: JobView, calls: CallFile, since: int | None) -> None:
        """`since` is a row of the journal from before any of its tasks ended, if that is known."""
        super().__init__(client, view)
        self._since = since
        with collector_paused():
            self.futures: list[YardFuture[T]] = [
                self._new_future(str(number // calls.chunk)) for number in range(calls.count)
            ]
            self._collect()

    def result(self, timeout: float | None = None) -> T:
        """What the function returned; raises what it raised, with the task's own traceback as its cause.

        TaskFailed: the task died before. CancelledError: it was cancelled. TimeoutError: it goes on.
        """
        if len(self.futures) != 1:
            raise UserError(
                f"{self._named} has {len(self.futures)} results; ask for results(), or for one of its futures"
            )
        return self.results(timeout)[0]

    def results(self, timeout: float | None = None, *, return_exceptions: bool = False) -> list[T]:
        """In the order of the arguments. The first call that failed raises its error as soon as it is known.

        With `return_exceptions` errors stand among the results, in place of what their calls would have returned.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        found: list[Any] = []
        with self._left_alone(), Progress() as shown:
            for future in self.futures:
                self._until_done(future, deadline, shown)
                try:
                    found.append(future.result())
                except Exception as error:
                    if not return_exceptions:
                        raise
                    found.append(error)
            if shown.is_begun:  # the job's own end follows that of its last task
                wait([self._ended()], TICK_SECONDS)
                shown.update(self._view)
        return found

    def __iter__(self) -> Iterator[T]:
        """Each result as soon as it and all before it are there."""
        with self._left_alone():
            for future in self.futures:
                yield future.result()

    def __len__(self) -> int:
        return len(self.futures)

    def retry(self) -> None:
        """Tasks that failed or were cancelled run once more; their calls have new futures."""
        self._since = self._client.server().last_event
        super().retry()

    def _begin_again(self, view: JobView) -> None:
        super()._begin_again(view)
        for at, future in enumerate(self.futures):
            if future.cancelled() or (future.done() and future.exception() is not None):
                self.futures[at] = self._new_future(future.task)
        self._collect()

    def _until_done(self, future: YardFuture[T], deadline: float | None, shown: Progress) -> None:
        if shown.is_wanted and not future.done():
            self._ended()  # keeps the view up to date
        while not future.done():
            shown.update(self._view)
            left = TICK_SECONDS if deadline is None else min(TICK_SECONDS, deadline - time.monotonic())
            if left <= 0:
                raise TimeoutError(f"{self._named} has not sent all results in time; it goes on")
            wait([future], left)

    def _new_future(self, task: str) -> YardFuture[T]:
        return YardFuture(task, self._cancelled)

    def _collect(self) -> None:
        by_task: dict[str, list[YardFuture[Any]]] = {}
        for future in self.futures:
            by_task.setdefault(future.task, []).append(future)
        waiting = {task: calls for task, calls in by_task.items() if not all(each.done() for each in calls)}
        begin(collect, self._client, self.id, waiting, self._since)

    def _cancelled(self, future: YardFuture[T]) -> None:
        """Its task goes when all its calls are cancelled."""
        if all(each.cancelled() for each in self.futures if each.task == future.task):
            self._client.cancel(self.id, tasks=(future.task,))
