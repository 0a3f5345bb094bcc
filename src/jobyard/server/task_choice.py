"""Task choice: which tasks of a job does a request to cancel or to retry mean?"""

from __future__ import annotations

from jobyard.engine.intervals import IntervalSet
from jobyard.engine.job_record import JobRecord
from jobyard.errors import UserError
from jobyard.model.job import ACTIVE
from jobyard.model.task_ranges import task_ranges
from jobyard.wire.requests import CancelJob, RetryJob

Ranges = tuple[tuple[int, int], ...]  # of task numbers, inclusive


def chosen_tasks(job: JobRecord, request: CancelJob | RetryJob) -> Ranges:
    """In order, each once; empty where the request chooses none and so means the job. Raises UserError where no task
    is in the states that it names."""
    named = IntervalSet(each for words in request.tasks for each in task_ranges(job.spec, words))
    if not request.states:
        return tuple(named.ranges())
    chosen = job.tasks.among(named if request.tasks else IntervalSet([(0, job.spec.size - 1)]), request.states)
    if not len(chosen):
        states = " or ".join(dict.fromkeys(state.value.lower() for state in request.states))
        raise UserError(f"job {job.number} has no {states} task{' among these' if request.tasks else ''}")
    return tuple(chosen.ranges())


def refuse_unended(job: JobRecord, ranges: Ranges) -> None:
    """Raises UserError for the first task that has not ended, and does not wait to be tried again either."""
    unended = [job.tasks.pending, *(IntervalSet(job.tasks.numbers_in(state)) for state in sorted(ACTIVE))]
    for low, high in ranges:
        found = [number for numbers in unended for number, _ in numbers.first_within(low, high, 1)]
        if found:
            task = job.task(min(found))
            label = job.spec.label_of(task.number)
            raise UserError(
                f"task {label} of job {job.number} {task.state.told}; only a task that ended can be retried"
            )
