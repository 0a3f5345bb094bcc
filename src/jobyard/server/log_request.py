"""Log request: which logs of a job does a caller want, of which of its tasks, and are they over?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobyard.engine.intervals import IntervalSet
from jobyard.engine.job_record import JobRecord
from jobyard.errors import NotFound
from jobyard.model.job import State
from jobyard.model.task_ranges import task_ranges
from jobyard.server.finding import find_job
from jobyard.server.loop import YardLoop


class LogRequest:
    """Which logs of a job are wanted."""

    def __init__(
        self,
        job: JobRecord,
        tasks: str,
        attempt: int | None,
        streams: Sequence[str],
        tail: int | None,
        *,
        only_failed: bool = False,
    ) -> None:
        """`tasks` are words as in `3,7-9`; empty: all of the job."""
        self.job = job
        self.attempt = attempt
        self.streams = streams
        self.tail = tail
        self._asked = IntervalSet(task_ranges(job.spec, tasks)) if tasks else None
        self._states = [State.FAILED] if only_failed else [state for state in State if state is not State.PENDING]
        self._left = self.asked()  # tasks that `is_over` has not seen ended
        self._next_left = next(self._left, None)
        single = next(iter(self._asked)) if self._asked is not None and len(self._asked) == 1 else None
        newest = job.tasks.most_attempts if single is None else job.task(single).attempt
        if attempt is not None and not 1 <= attempt <= newest:
            whose = f"job {job.number} has" if single is None else f"task {tasks} of job {job.number} has"
            times = f"{newest} time{'s' if newest != 1 else ''}"
            raise NotFound(f"{whose} no attempt {attempt}; it was tried {times}")

    def has(self, number: int) -> bool:
        return self._asked is None or number in self._asked

    def attempts_of(self, number: int, job: JobRecord | None = None) -> list[int]:
        """`job` is the record to look in, where that of the request may have been replaced."""
        newest = (job or self.job).task(number).attempt
        if self.attempt is not None:
            return [self.attempt] if self.attempt <= newest else []
        return [newest] if newest else []

    def asked(self) -> Iterator[int]:
        """All tasks that were asked for, in order."""
        return iter(range(self.job.spec.size) if self._asked is None else self._asked)

    def numbers(self) -> Iterator[int]:
        """Of them those that were tried by now, in order; what changes while they are read does not matter."""
        tried = sorted(span for state in self._states for span in self.job.tasks.numbers_in(state))
        for first, last in tried:
            spans = [(first, last)] if self._asked is None else self._asked.first_within(first, last, last - first + 1)
            for low, high in spans:
                yield from range(low, high + 1)

    def is_over(self, job: JobRecord) -> bool:
        """Whether all that was asked for has ended. A task that has ended once is not looked at again."""
        while not job.is_final and self._next_left is not None and job.task(self._next_left).state.is_final:
            self._next_left = next(self._left, None)
        return job.is_final or self._next_left is None


def log_request(
    loop: YardLoop,
    selector: str,
    tasks: str,
    attempt: int | None,
    streams: Sequence[str],
    tail: int | None = None,
    *,
    only_failed: bool = False,
) -> LogRequest:
    """Raises NotFound or UserError where there is no such job, task or attempt."""
    return LogRequest(find_job(loop.state, selector), tasks, attempt, streams, tail, only_failed=only_failed)
