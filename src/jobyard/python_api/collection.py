"""Collection of results: how do the futures of a job get what its tasks sent back? As each task ends, in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from jobyard.client.api import YardClient
from jobyard.errors import TaskFailed, YardError
from jobyard.model.job import State
from jobyard.python_api.background import begin
from jobyard.python_api.futures import YardFuture
from jobyard.python_api.job import failure_of_task
from jobyard.python_api.outcomes import Outcome, outcomes_of
from jobyard.wire.views import EndingView, JobView, TaskView

ONE_BY_ONE = 16  # tasks whose results are fetched by themselves; of more the whole job's are fetched at its end

TaskFutures = dict[str, list[YardFuture[Any]]]  # by the label of their task


def collect(client: YardClient, job: str, futures: TaskFutures, since: int | None) -> None:
    """Returns when the job has ended and every future is done; what cannot be fetched is their error.

    `since` is a row of the journal before which none of these tasks ended. None: nobody knows, so all are fetched at
    the job's end.
    """
    waiting = dict(futures)
    try:
        if since is None:
            for _ in client.watch(job):
                pass
        else:
            _as_they_end(client, job, waiting, since)
        _the_rest(client, job, waiting)
    except BaseException as error:
        for each in waiting.values():
            _finish(each, [Outcome(error=error)])
        if not isinstance(error, YardError):
            raise


def _as_they_end(client: YardClient, job: str, waiting: TaskFutures, since: int) -> None:
    ended: SimpleQueue[EndingView | None] = SimpleQueue()

    def read() -> None:
        try:
            for ending in client.endings(job, since=since):
                ended.put(ending)
        finally:
            ended.put(None)

    reading = begin(read)
    while (ending := ended.get()) is not None:
        if ending.task in waiting and (ended.qsize() < ONE_BY_ONE or not _is_over(ended)):
            _fetch(client, job, ending, waiting)
    reading.result()


def _fetch(client: YardClient, job: str, ending: EndingView, waiting: TaskFutures) -> None:
    for label, outcomes in outcomes_of(client, job, ending.task):
        _finish(waiting.pop(label, ()), outcomes)
    if ending.task in waiting:
        for task in client.tasks(job, offset=ending.number, limit=1):
            _without_result(client, client.job(job), task, waiting.pop(ending.task))


def _is_over(ended: SimpleQueue[EndingView | None]) -> bool:
    """Have all tasks ended? Then the rest is fetched at once. What is taken from the queue to find out goes back."""
    taken = []
    with suppress(Empty):
        while True:
            taken.append(ended.get_nowait())
    for each in taken:
        ended.put(each)
    return bool(taken) and taken[-1] is None


def _the_rest(client: YardClient, job: str, waiting: TaskFutures) -> None:
    """Those that wrote nothing too: they were cancelled, or died."""
    if not waiting:
        return
    for label, outcomes in outcomes_of(client, job, None if len(waiting) > 1 else next(iter(waiting))):
        _finish(waiting.pop(label, ()), outcomes)
    view = client.job(job)
    for task in client.tasks(job, limit=view.counts.total) if waiting else ():
        if task.label in waiting:
            _without_result(client, view, task, waiting.pop(task.label))


def _without_result(client: YardClient, job: JobView, task: TaskView, futures: Sequence[YardFuture[Any]]) -> None:
    if task.state is State.CANCELLED:
        for future in futures:
            future.give_up()
        return
    error = failure_of_task(client, job, task)
    if task.state is State.SUCCEEDED:
        which = f"task {task.label} of job {job.number} ({job.name})"
        error = TaskFailed(f"{which} succeeded, and sent no result; return one")
    _finish(futures, [Outcome(error=error)])


def _finish(futures: Sequence[YardFuture[Any]], outcomes: Sequence[Outcome]) -> None:
    """Of one task. What cannot be read is one error for all its calls."""
    if len(outcomes) == 1 and outcomes[0].error is not None:
        outcomes = [outcomes[0]] * len(futures)
    if len(outcomes) != len(futures):
        wrong = TaskFailed(f"the task sent {len(outcomes)} results, and makes {len(futures)} calls")
        outcomes = [Outcome(error=wrong)] * len(futures)
    for future, outcome in zip(futures, outcomes, strict=True):
        future.finish(outcome)
