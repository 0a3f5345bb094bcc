"""Do futures get what their tasks sent back, whatever becomes of the tasks?"""

from __future__ import annotations

import asyncio
import io
import pickle
import sys
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Any, cast

import pytest

from jobyard.client.api import YardClient
from jobyard.errors import NotFound, TaskFailed, Unreachable
from jobyard.model.job import State
from jobyard.python_api.background import awaited, each
from jobyard.python_api.collection import ONE_BY_ONE, collect
from jobyard.python_api.futures import YardFuture
from jobyard.python_api.outcomes import Outcome
from jobyard.wire.views import EndingView, JobView, LogChunk, TaskView
from tests.unit.python_api.test_display import a_view


class Raw(bytes):
    """What a task wrote as its results, as it stands."""


class Exits:
    """Ends the program that reads it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, (0,)


class PlayedClient:
    """A yard whose tasks have ended: with values, with an error, or with nothing."""

    def __init__(self, *states: State, values: dict[int, Any]) -> None:
        self.states, self.values = states, values
        self.fetched: list[str | None] = []
        self.breaks: Exception | None = None

    def endings(self, job: str, *, since: int) -> Iterator[EndingView]:
        for number, state in enumerate(self.states):
            if state is not State.CANCELLED:  # it never began
                yield EndingView(number, str(number), 1, state, "vm", 0.0, 1.0, 0, None, 0, "")
        if self.breaks is not None:
            raise self.breaks

    def results(self, job: str, *, task: str | None = None) -> Iterator[bytes]:
        self.fetched.append(task)
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w") as tar:
            for number, value in self.values.items():
                if task in (None, str(number)):
                    content = value if isinstance(value, Raw) else pickle.dumps([("value", pickle.dumps(value), "")])
                    member = tarfile.TarInfo(f"{number}/output/result.pickle")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
        if not whole.getvalue().strip(b"\0"):
            raise NotFound("none has begun")
        yield whole.getvalue()

    def job(self, job: str) -> JobView:
        view = a_view(State.FAILED, total=len(self.states))
        return replace(view, counts=replace(view.counts, total=len(self.states)))

    def tasks(self, job: str, *, offset: int = 0, limit: int) -> Sequence[TaskView]:
        found = [TaskView(number, str(number), state, message="gone") for number, state in enumerate(self.states)]
        return found[offset : offset + limit]

    def logs(self, job: str, *, task: str, tail: int) -> Iterator[LogChunk]:
        yield LogChunk(task, 1, "err", "last words\n")


def collected(client: PlayedClient) -> list[Future[Any]]:
    futures = {str(number): [YardFuture[Any](str(number), lambda _: None)] for number in range(len(client.states))}
    collect(cast(YardClient, client), "ab12", cast(Any, futures), 7)
    assert all(future.done() for (future,) in futures.values())
    return [future for (future,) in futures.values()]


def test_each_task_that_ends_is_fetched_and_one_that_died_tells_its_last_lines() -> None:
    client = PlayedClient(State.SUCCEEDED, State.FAILED, State.CANCELLED, values={0: "found"})
    first, second, third = collected(client)
    assert first.result() == "found"
    assert str(second.exception()) == "task 1 of job 1 (train) failed: gone; its output ends with:\nlast words"
    assert isinstance(second.exception(), TaskFailed)
    assert third.cancelled()


def test_many_that_have_ended_are_fetched_at_once() -> None:
    many = 20 * ONE_BY_ONE
    client = PlayedClient(*(State.SUCCEEDED,) * many, values=dict(enumerate(range(many))))
    assert [future.result() for future in collected(client)] == list(range(many))
    assert client.fetched[-1] is None
    assert len(client.fetched) < many


def test_a_yard_that_is_gone_is_the_error_of_what_waits_and_of_nothing_else() -> None:
    client = PlayedClient(State.SUCCEEDED, State.CANCELLED, values={0: 1})
    client.breaks = Unreachable("nobody answers")
    first, second = collected(client)
    assert first.result() == 1
    assert second.exception() is client.breaks


@pytest.mark.parametrize("many", [0, 20 * ONE_BY_ONE])
@pytest.mark.parametrize(
    "odd",
    [
        [],
        5,
        None,
        (),
        [None],
        [("value", b"")],
        [("error", b"", "")],
        [("other", b"", "")],
        [("value", "x", "")],
        {"a": 1},
        "text",
        Exits(),
        [("value", pickle.dumps(Exits()), "")],
        [("value", pickle.dumps(1), "")] * 2,
    ],
)
def test_an_odd_result_is_the_error_of_its_own_task_alone(odd: object, many: int) -> None:
    values = {0: Raw(pickle.dumps(odd)), 1: "fine", **dict.fromkeys(range(2, many), "fine")}
    first, *others = collected(PlayedClient(*(State.SUCCEEDED,) * len(values), values=values))
    assert isinstance(first.exception(), TaskFailed)
    assert {future.result() for future in others} == {"fine"}


def test_cancelling_a_call_asks_the_yard_once() -> None:
    cancelled: list[object] = []
    future = YardFuture[int]("0", cancelled.append)
    assert future.cancel()
    assert future.cancel()
    assert cancelled == [future]


def test_a_cancelled_call_is_done_for_whoever_waits_for_it() -> None:
    future = YardFuture[int]("0", lambda _: None)
    assert future.cancel()
    assert wait([future], timeout=0).done == {future}
    future.give_up()
    future.finish(Outcome(3))
    assert future.cancelled()


def test_a_task_that_succeeds_without_a_result_is_told_so() -> None:
    (future,) = collected(PlayedClient(State.SUCCEEDED, values={}))
    assert str(future.exception()) == "task 0 of job 1 (train) succeeded, and sent no result; return one"


async def test_who_awaits_a_call_no_more_has_not_cancelled_it() -> None:
    future = YardFuture[int]("0", lambda _: pytest.fail("cancelled"))

    async def waiting() -> int:
        return await future

    task = asyncio.create_task(waiting())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    future.finish(Outcome(3))
    assert await future == 3


async def test_what_an_iterator_brings_comes_in_order_and_so_does_its_error() -> None:
    def some() -> Iterator[int]:
        yield from range(3)
        raise ValueError("enough")

    found = []

    async def read() -> None:
        async for number in each(some):
            found.append(number)

    with pytest.raises(ValueError, match="enough"):
        await read()
    assert found == [0, 1, 2]
    assert await awaited(lambda: 7) == 7
