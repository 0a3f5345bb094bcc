"""Does the executor keep the promises of `concurrent.futures`, and submit together what comes together?"""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import CancelledError, Future, wait
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from jobyard.errors import UserError
from jobyard.python_api import executor as executors
from jobyard.python_api.call_file import Calls
from jobyard.python_api.executor import YardExecutor
from jobyard.python_api.yard import Yard
from tests.waiting import until


class PlayedSubmit:
    """Takes calls as the yard would; a test makes them, or leaves them alone."""

    def __init__(self) -> None:
        self.jobs: list[list[tuple[bytes, Future[Any]]]] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.came = threading.Semaphore(0)
        self.refusal: UserError | None = None

    def __call__(self, client: object, function: Any, calls: Calls, said: dict[str, Any]) -> SimpleNamespace:
        self.function, self.said = function, said
        job = [(pickled, Future[Any]()) for pickled in calls.arguments]
        self.jobs.append(job)
        self.came.release()
        assert self.may_go.wait(60)
        if self.refusal is not None:
            raise self.refusal
        return SimpleNamespace(futures=[future for _, future in job])

    def make_all_calls(self) -> None:
        for pickled, future in (call for job in self.jobs for call in job):
            arguments, keywords = pickle.loads(pickled)
            if not future.done():
                try:
                    future.set_result(self.function(*arguments, **keywords))
                except Exception as error:
                    future.set_exception(error)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedSubmit:
    played = PlayedSubmit()
    monkeypatch.setattr(executors, "submit_calls", played)
    return played


@pytest.fixture
def executor(played: PlayedSubmit) -> YardExecutor:
    yard = Yard("unix:/nowhere")
    yard.__dict__["client"] = None  # nobody is asked
    return YardExecutor(yard, cpus=2)


def test_calls_that_come_together_are_one_job(executor: YardExecutor, played: PlayedSubmit) -> None:
    played.may_go.clear()
    first = executor.submit(pow, 2, 3)
    assert played.came.acquire(timeout=60)
    others = [executor.submit(divmod, number, 3) for number in range(20)]
    played.may_go.set()
    assert played.came.acquire(timeout=60)
    executor.shutdown(wait=False)
    follow(executor)
    played.make_all_calls()
    assert first.result(60) == 8
    assert [future.result(60) for future in others] == [divmod(number, 3) for number in range(20)]
    assert [len(job) for job in played.jobs] == [1, 20]
    assert played.said == {"name": "executor", "cpus": 2}


def test_an_error_of_a_call_and_a_refusal_of_the_yard_are_errors_of_the_future(
    executor: YardExecutor, played: PlayedSubmit
) -> None:
    wrong = executor.submit(int, "x")
    assert played.came.acquire(timeout=60)
    follow(executor, wrong)
    played.make_all_calls()
    assert isinstance(wrong.exception(60), ValueError)
    played.refusal = UserError("no")
    assert executor.submit(int, "1").exception(60) is played.refusal


def test_what_cannot_be_sent_is_refused_at_once(executor: YardExecutor, played: PlayedSubmit) -> None:
    with pytest.raises(UserError, match="the call of print cannot be sent to a task: cannot pickle"):
        executor.submit(print, threading.Lock())
    assert played.jobs == []


def test_after_the_shutdown_nothing_is_taken_and_what_waits_may_be_cancelled(
    executor: YardExecutor, played: PlayedSubmit
) -> None:
    future = executor.submit(time.sleep, 1000)
    assert played.came.acquire(timeout=60)
    follow(executor, future)
    executor.shutdown(cancel_futures=True)
    ((_, of_task),) = played.jobs[0]
    assert of_task.cancelled()
    with pytest.raises(CancelledError):
        future.result(60)
    with pytest.raises(RuntimeError, match="was shut down; make another one"):
        executor.submit(abs, 1)
    with pytest.raises(RuntimeError, match="was shut down; make another one"):
        executor.map(abs, [1])


def test_what_is_taken_while_the_executor_is_shut_down_is_submitted_still(
    executor: YardExecutor, played: PlayedSubmit
) -> None:
    """A shutdown of another thread comes as the call goes into the queue."""

    class Queue(SimpleQueue[Any]):
        def put(self, item: Any, *rest: Any) -> None:
            if item is not None:
                stopping.start()
                stopping.join(0.2)  # where nothing keeps it back, it is done by then
            super().put(item, *rest)

    stopping = threading.Thread(target=executor.shutdown, kwargs={"wait": False})
    executor._queue = Queue()
    future = executor.submit(abs, -3)
    stopping.join(60)
    assert played.came.acquire(timeout=5)
    follow(executor, future)
    played.make_all_calls()
    assert future.result(60) == 3


def test_a_call_that_is_cancelled_before_it_is_submitted_is_done(executor: YardExecutor, played: PlayedSubmit) -> None:
    played.may_go.clear()
    executor.submit(abs, -1)
    assert played.came.acquire(timeout=60)
    future = executor.submit(abs, -2)
    assert future.cancel()
    played.may_go.set()
    assert wait([future], timeout=60).done == {future}
    assert len(played.jobs) == 1


def test_mapping_over_nothing_is_nothing(executor: YardExecutor, played: PlayedSubmit) -> None:
    assert list(executor.map(abs, [])) == []
    assert played.jobs == []


def follow(executor: YardExecutor, *futures: Future[Any]) -> None:
    """Until the executor has heard of its last job: it does nothing else after that."""
    for future in futures or tuple(executor._all):
        until(lambda future=future: getattr(future, "_of_task", None) is not None)  # type: ignore[misc]
