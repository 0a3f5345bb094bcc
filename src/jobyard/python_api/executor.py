"""Executor of `concurrent.futures`: how do libraries that take one run their functions in a yard?"""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar, Unpack

from jobyard.python_api.background import begin
from jobyard.python_api.call_file import Calls
from jobyard.python_api.field_types import JobFields
from jobyard.python_api.function_job import FunctionJob
from jobyard.python_api.functions import submit_calls
from jobyard.python_api.pickling import name_of, pickled_call, pickled_function
from jobyard.python_api.yard import Yard

P = ParamSpec("P")
T = TypeVar("T")
CALLS_MOST = 1000  # of one job

_Submitted = tuple["ExecutorFuture[Any]", bytes]


class ExecutorFuture(Future[T]):
    """A call that is submitted soon, and then follows the future of its task."""

    def __init__(self) -> None:
        super().__init__()
        self._of_task: Future[T] | None = None

    def cancel(self) -> bool:
        """Also one that runs. False where it has ended already."""
        if not super().cancel():
            return False
        if self._of_task is not None:
            self._of_task.cancel()
        return True

    def is_given_up(self) -> bool:
        """Asked once, before it is submitted: who waits for a cancelled one hears of it then."""
        if not self.cancelled():
            return False
        self.set_running_or_notify_cancel()
        return True

    def follow(self, future: Future[T]) -> None:
        self._of_task = future
        if self.cancelled():
            future.cancel()
        future.add_done_callback(self._take)

    def _take(self, future: Future[T]) -> None:
        if future.cancelled():
            if super().cancel():
                self.set_running_or_notify_cancel()
        elif error := future.exception():
            self.fail(error)
        elif not self.done() and self.set_running_or_notify_cancel():
            self.set_result(future.result())

    def fail(self, error: BaseException) -> None:
        if not self.done() and self.set_running_or_notify_cancel():
            self.set_exception(error)


class YardExecutor(Executor):
    """Runs functions as tasks. What is submitted while a job is on its way goes together, as the next job.

    `with YardExecutor(cpus=2) as executor:` waits for all that was submitted, as every executor does.
    """

    def __init__(self, yard: Yard | None = None, *, python: str = "", **said: Unpack[JobFields]) -> None:
        """The keywords are those of `Yard.submit`, for each task."""
        self._yard = yard or Yard()
        self._python = python
        self._said: Any = {"name": "executor", **said}
        self._queue: SimpleQueue[_Submitted | None] = SimpleQueue()
        self._all: set[Future[Any]] = set()
        self._lock = threading.Lock()
        self._is_shut = False
        self._dispatcher: Future[None] | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Raises UserError for what cannot be sent to a task. What the yard refuses is the error of the future."""
        pickled = pickled_call(((fn, *args), kwargs), f"the call of {name_of(fn)}")
        future: ExecutorFuture[T] = ExecutorFuture()
        with self._lock:  # what comes into the queue after a shutdown is never taken out
            self._refuse_if_shut()
            self._all.add(future)
            if self._dispatcher is None:
                self._dispatcher = begin(self._dispatch)
            self._queue.put((future, pickled))
        future.add_done_callback(self._all.discard)
        return future

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[T]:
        """One job, as `Yard.map`; results in order. What is not read any more is cancelled, as executors do."""
        with self._lock:
            self._refuse_if_shut()
        arguments = list(zip(*iterables, strict=False))
        if not arguments:
            return iter(())
        deadline = None if timeout is None else time.monotonic() + timeout
        job = self._yard.map(fn, *zip(*arguments, strict=True), chunk=chunksize, python=self._python, **self._said)
        for future in job.futures:
            self._all.add(future)
            future.add_done_callback(self._all.discard)
        return _in_order(job, deadline)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing is submitted after that. What was submitted goes on, unless it is to be cancelled."""
        with self._lock:
            self._is_shut = True
            self._queue.put(None)
        if cancel_futures:
            for future in tuple(self._all):
                future.cancel()
        if wait:
            wait_for(tuple(self._all))

    def _refuse_if_shut(self) -> None:
        if self._is_shut:
            raise RuntimeError("cannot submit to an executor that was shut down; make another one")

    def _dispatch(self) -> None:
        """Submits what waits, together, until the executor is shut down."""
        is_over = False
        while not is_over:
            waiting = [self._queue.get()]
            try:
                while len(waiting) < CALLS_MOST:
                    waiting.append(self._queue.get_nowait())
            except Empty:
                pass
            is_over = None in waiting
            calls = [each for each in waiting if each is not None and not each[0].is_given_up()]
            if calls:
                self._submit_all(calls)

    def _submit_all(self, submitted: list[_Submitted]) -> None:
        futures = [future for future, _ in submitted]
        try:
            calls = Calls(pickled_function(operator.call), [pickled for _, pickled in submitted], python=self._python)
            job: FunctionJob[Any] = submit_calls(self._yard.client, operator.call, calls, self._said)
        except BaseException as error:
            for future in futures:
                future.fail(error)
            return
        for future, of_task in zip(futures, job.futures, strict=True):
            future.follow(of_task)


def _in_order(job: FunctionJob[T], deadline: float | None) -> Iterator[T]:
    try:
        for future in job.futures:
            yield future.result(None if deadline is None else deadline - time.monotonic())
    finally:
        for future in job.futures:
            future.cancel()
