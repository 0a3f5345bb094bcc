"""Job in Python: how does it go, what did it write, and how is it stopped?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress

from jobyard.client.api import YardClient
from jobyard.errors import OutputDamaged, TaskFailed, UserError, YardError
from jobyard.model.job import State
from jobyard.python_api.background import begin
from jobyard.python_api.display import Progress, TaskTable, html_of_job
from jobyard.wire.views import JobView, TaskView

TASKS_MOST = 1000  # that `tasks` asks for, unless the caller says how many
LAST_LINES = 10  # of the output, in the error of a task that failed
TICK_SECONDS = 0.5


class Job:
    """A job of a yard, whoever submitted it. Safe to use from several threads."""

    def __init__(self, client: YardClient, view: JobView) -> None:
        self._client = client
        self._view = view
        self._end: Future[JobView] | None = None

    # -- looking

    @property
    def id(self) -> str:
        return self._view.id

    @property
    def number(self) -> int:
        """As `yard ls` names it."""
        return self._view.number

    @property
    def name(self) -> str:
        return self._view.name

    @property
    def state(self) -> State:
        """As it is now."""
        return self.show().state

    def show(self) -> JobView:
        """All that the yard says of it, as `yard show`. A job that has ended and was not retried is not asked again."""
        if not self._view.state.is_final:
            self._view = self._client.job(self.id)
        return self._view

    def tasks(self, *, state: str | None = None, limit: int = TASKS_MOST) -> TaskTable:
        """Its first tasks, or the first in this state, as `yard show --tasks`."""
        return TaskTable(self._client.tasks(self.id, state=state, limit=limit))

    def logs(self, *, task: str | None = None, stream: str | None = None, tail: int | None = None) -> str:
        """What it has written so far: of all tasks, or of one; `stream` is out or err, or both. Nothing: empty."""
        return "".join(self.output(task=task, stream=stream, tail=tail, follow=False))

    def output(
        self, *, task: str | None = None, stream: str | None = None, tail: int | None = None, follow: bool = True
    ) -> Iterator[str]:
        """What it writes, in pieces, as it comes; until its end, unless `follow` is False."""
        for chunk in self._client.logs(self.id, task=task, stream=stream, tail=tail, follow=follow):
            if chunk.damage:
                raise OutputDamaged(chunk.damage)
            if chunk.data:
                yield chunk.data

    # -- waiting

    def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> State:
        """How it ended, once it has; it need not have succeeded. TimeoutError: not in so many seconds; it goes on.

        Ctrl-C leaves the job alone. Progress is shown in terminals and notebooks, unless `progress` says otherwise.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._left_alone(), Progress(progress) as shown:
            end = self._ended()
            while not end.done():
                shown.update(self._view)
                left = TICK_SECONDS if deadline is None else min(TICK_SECONDS, deadline - time.monotonic())
                if left <= 0:
                    raise TimeoutError(f"{self._named} has not ended in {timeout:g} s; it goes on")
                wait([end], left)
            shown.update(end.result())
        return end.result().state

    def result(self, timeout: float | None = None) -> object:
        """What its one task wrote to its standard output, once it has succeeded. Raises TaskFailed."""
        if self._view.counts.total != 1:
            raise UserError(
                f"{self._named} has {self._view.counts.total} tasks; ask for results(), or for logs(task=...)"
            )
        self.succeeded(timeout)
        return self._stdout(None)

    def results(self, timeout: float | None = None) -> Sequence[object]:
        """The same of each task, in their order."""
        self.succeeded(timeout)
        return [self._stdout(task.label) for task in self._client.tasks(self.id, limit=self._view.counts.total)]

    def succeeded(self, timeout: float | None = None) -> None:
        """Returns when it has. Raises TaskFailed with the end of the output otherwise, or TimeoutError."""
        if self.wait(timeout) is not State.SUCCEEDED:
            raise failure_of(self._client, self._view)

    # -- acting

    def cancel(self, *, force: bool = False) -> None:
        """For good; with `force` without the grace. Returns when it is asked: `wait` for its end."""
        self._client.cancel(self.id, force=force)

    def retry(self) -> None:
        """Its failed and cancelled tasks run once more. Raises UserError where there are none."""
        self._begin_again(self._client.retry(self.id))

    # -- behind that

    def _begin_again(self, view: JobView) -> None:
        self._view, self._end = view, None

    def _ended(self) -> Future[JobView]:
        if self._end is None:
            self._end = begin(self._watch)
        return self._end

    def _watch(self) -> JobView:
        for view in self._client.watch(self.id):
            self._view = view
        return self._view

    def _stdout(self, task: str | None) -> str:
        return b"".join(self._client.raw_log(self.id, task=task)).decode("utf-8", "surrogateescape")

    @contextmanager
    def _left_alone(self) -> Iterator[None]:
        """Whoever presses Ctrl-C is told that the job goes on, and how it is cancelled."""
        try:
            yield
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(f"{self._named} goes on; to cancel it: job.cancel(), or `yard cancel {self.number}`")
            raise

    @property
    def _named(self) -> str:
        """In sentences."""
        return f"job {self.number} ({self.name})"

    def __str__(self) -> str:
        """With its state as it is now, or as it was last seen where the yard does not answer."""
        with suppress(YardError):
            self.show()
        return f"{self._named} {self._view.state.told}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number} {self.name!r} {self._view.state}>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        return html_of_job(self.show())


def failure_of(client: YardClient, job: JobView) -> TaskFailed:
    """Why a job that has ended did not succeed: its first failed task, or that it was cancelled."""
    if job.first_failure is not None:
        return failure_of_task(client, job, job.first_failure.task)
    return TaskFailed(f"job {job.number} ({job.name}) {job.state.told}{f': {job.message}' if job.message else ''}")


def failure_of_task(client: YardClient, job: JobView, task: TaskView) -> TaskFailed:
    """With the reason, and with the end of what the task wrote."""
    of_task = f"task {task.label} of " if job.counts.total > 1 else ""
    what = f"{of_task}job {job.number} ({job.name})"
    why = f": {task.message}" if task.message else ""
    lines = "".join(chunk.data for chunk in client.logs(job.id, task=task.label, tail=LAST_LINES)).rstrip()
    return TaskFailed(f"{what} {task.state.told}{why}" + (f"; its output ends with:\n{lines}" if lines else ""))
