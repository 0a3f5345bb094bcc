"""Deadlines: which jobs must the planner look at because time passes, and when? Never at one that has not begun.

Only a job that holds a slot, or has held one, can run too long, or wait for the delay of a retry or of its next start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from jobyard.engine.job_record import JobRecord
from jobyard.engine.yard_state import YardState
from jobyard.model.events import DeadlinePassed, RetryDelayPassed


class Deadline(NamedTuple):
    at: float
    passed: type[DeadlinePassed | RetryDelayPassed] | None  # what then happens; None: the scheduler is asked again
    job: str


class Deadlines:
    """Reads the state, and forgets the jobs of `changes.begun` that wait for nothing until they get another slot."""

    def __init__(self, state: YardState) -> None:
        self._state = state
        self._asked_at: dict[str, float] = {}  # by job: of which start time the scheduler was asked

    def __iter__(self) -> Iterator[Deadline]:
        """In no order. What is handled meanwhile counts for those that follow."""
        state = self._state
        for job_id in list(state.changes.begun):
            if job_id in state.quarantined:
                continue
            if (job := state.unfinished.get(job_id)) is not None:
                yield from self.of(job)
            if job is None or not self._may_have_one(job):
                state.changes.begun.pop(job_id, None)
                self._asked_at.pop(job_id, None)

    def next(self) -> float | None:
        return min((each.at for each in self), default=None)

    def ask(self, deadline: Deadline) -> None:
        """The scheduler is asked because this start time has come: not again for the same one."""
        self._asked_at[deadline.job] = deadline.at
        self._state.changes.plan = True

    def of(self, job: JobRecord) -> Iterator[Deadline]:
        """When it has run too long, when the next of its failed tasks may be tried again, and when its next task may
        start at all."""
        seconds, started = job.spec.policy.deadline_seconds, job.times.started_at
        if seconds is not None and started is not None and job.stop is None:
            yield Deadline(started + seconds, DeadlinePassed, job.id)
        if (first := job.tasks.delayed.first) is not None:
            yield Deadline(first.until, RetryDelayPassed, job.id)
        if self._starts_later(job):
            yield Deadline(job.times.next_start_at, None, job.id)

    def _may_have_one(self, job: JobRecord) -> bool:
        """Before it gets another slot."""
        return bool(job.slots or job.times.next_start_at) or any(self.of(job))

    def _starts_later(self, job: JobRecord) -> bool:
        """Is the scheduler still to be asked for its next task, once that may start?"""
        if not job.times.next_start_at or job.stop is not None or not len(job.tasks.pending):
            return False
        return self._asked_at.get(job.id) != job.times.next_start_at
