"""Task ranges: which tasks of a job do words such as `3`, `3,7-9`, `20-`, `worker/0-3` and `17/3-7` name?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jobyard.errors import UserError
from jobyard.model.job import JobSpec
from jobyard.model.limits import NAME_MOST


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
    asked = ",".join(filter(None, (tasks, *more)))
    for each in asked.split(",") if asked else ():
        if not each.strip():
            raise UserError(f"tasks {asked!r:.80}: a comma has no task beside it; write 3,5 for two tasks")
        if len(each) > NAME_MOST:
            raise UserError(f"tasks {each!r:.80}: no task has so long a name; `yard show JOB --tasks` lists them")
    return JobTasks(job, asked)


def task_ranges(spec: JobSpec, words: str) -> list[tuple[int, int]]:
    """As inclusive ranges of task numbers, in the order of the words. Raises NotFound or UserError with the word."""
    return [_range(spec, word.strip()) for word in words.split(",")]


def names_one_task(words: str) -> bool:
    """Whether these are the label of a single task, and no list or range."""
    return "," not in words and "-" not in words.rpartition("/")[2]


def _range(spec: JobSpec, word: str) -> tuple[int, int]:
    group, slash, index = word.rpartition("/")
    first, dash, last = index.partition("-")
    if dash and not first:
        raise UserError(_without_begin(spec, word, f"{group}{slash}", last))
    low = spec.number_of(f"{group}{slash}{first}")
    if dash and not last:
        return low, spec.offsets[spec.place_of(low).group + 1] - 1
    high = spec.number_of(f"{group}{slash}{last}") if dash else low
    if high < low:
        way_out = f"write {group}{slash}{last}-{first}, or name each with a comma between"
        raise UserError(f"tasks {word!r}: task {last} of job {spec.name!r} comes before task {first}; {way_out}")
    return low, high


def _without_begin(spec: JobSpec, word: str, prefix: str, last: str) -> str:
    """`-1` is refused: some would mean the last task by it, and others all up to task 1."""
    if not last:
        return f"tasks {word!r}: a dash alone names no task; leave the tasks out for all of them"
    high = spec.number_of(f"{prefix}{last}")
    begin, end = spec.offsets[spec.place_of(high).group :][:2]
    first, final = (spec.label_of(number).rpartition("/")[2] for number in (begin, end - 1))
    return (
        f"tasks {word!r}: a range begins with a task; write {prefix}{first}-{last} for all up to {last}, "
        f"or {prefix}{final} for the last one"
    )
