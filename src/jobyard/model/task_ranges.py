"""Task ranges: which tasks of a job do words such as `3`, `3,7-9`, `worker/0-3` or, with the job, `17/3-7` name?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jobyard.errors import UserError
from jobyard.model.job import JobSpec


class JobTasks(NamedTuple):
    """A job, and the tasks of it that are meant."""

    job: str  # as any command names a job: `17`, `fba3`, `train`, `last`
    tasks: str  # words for `task_ranges`; empty: all of them


def job_and_tasks(word: str, more: Sequence[str] = ()) -> JobTasks:
    """Reads `17`, `17/3-7` and `17/worker/3`; `more` are tasks that flags name beside. Raises UserError.

    A name of a job has no slash, so the first one ends it.
    """
    job, slash, tasks = word.partition("/")
    if slash and not (job and tasks):
        missing = "no task after" if job else "no job before"
        raise UserError(f"{word!r} has {missing} the slash; write JOB/TASKS, as in 17/3 or 17/3-7")
    return JobTasks(job, ",".join(filter(None, (tasks, *more))))


def task_ranges(spec: JobSpec, words: str) -> list[tuple[int, int]]:
    """As inclusive ranges of task numbers, in the order of the words. Raises NotFound or UserError with the word."""
    return [_range(spec, word.strip()) for word in words.split(",")]


def names_one_task(words: str) -> bool:
    """Whether these are the label of a single task, and no list or range."""
    return "," not in words and "-" not in words.rpartition("/")[2]


def _range(spec: JobSpec, word: str) -> tuple[int, int]:
    group, slash, index = word.rpartition("/")
    first, dash, last = index.partition("-")
    low = spec.number_of(f"{group}{slash}{first}")
    high = spec.number_of(f"{group}{slash}{last}") if dash else low
    if high < low:
        way_out = f"write {group}{slash}{last}-{first}, or name each with a comma between"
        raise UserError(f"tasks {word!r}: task {last} of job {spec.name!r} comes before task {first}; {way_out}")
    return low, high
