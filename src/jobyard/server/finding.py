"""Job selector: which job is meant by `17`, `fba3`, `train` or `last`?

A command must never hit another job than the one that was meant. So all digits are a job's number and nothing else, and
the beginning of an id needs a letter: ids are hexadecimal, and many of them begin with a digit.
"""

from __future__ import annotations

import re

from jobyard.engine.job_record import JobRecord
from jobyard.engine.yard_state import YardState
from jobyard.errors import NotFound, UserError
from jobyard.model.selectors import NEWEST

_DIGITS = re.compile(r"[0-9]+")
_LONGEST_NUMBER = 18


def find_job(state: YardState, selector: str) -> JobRecord:
    """By number, whole id, name (the newest), unique beginning of an id with a letter in it, or `last`.

    Raises NotFound or UserError.
    """
    if not state.jobs:
        raise NotFound(f"no job {selector!r}: the yard is empty; `yard run -- CMD` makes the first")
    if selector in NEWEST:
        return max(state.jobs.values(), key=lambda job: job.number)
    if _DIGITS.fullmatch(selector):
        return _by_number(state, selector)
    if job := state.jobs.get(selector):
        return job
    named = [job for job in state.jobs.values() if job.spec.name == selector]
    if named:
        return max(named, key=lambda job: job.number)
    begin = [job for key, job in state.jobs.items() if key.startswith(selector)] if selector else []
    if len(begin) == 1:
        return begin[0]
    if begin:
        raise UserError(f"job {selector!r} could be {', '.join(job.id for job in begin[:5])}; give more letters")
    raise NotFound(f"no job {selector!r}; `yard ls -a` lists them")


def find_live_job(state: YardState, selector: str) -> JobRecord:
    """The job that is to be changed: of several with one name the one that has not ended.

    Raises UserError where several have not ended: it is not clear which is meant.
    """
    job = find_job(state, selector)
    if selector != job.spec.name or selector == job.id:
        return job
    live = [each for each in state.unfinished.values() if each.spec.name == selector]
    if len(live) > 1:
        numbers = ", ".join(str(each.number) for each in live[-5:])
        raise UserError(
            f"{len(live)} jobs that have not ended are named {selector!r}: {numbers}; say which by its number"
        )
    return live[0] if live else job


def _by_number(state: YardState, selector: str) -> JobRecord:
    if selector.startswith("0"):
        raise UserError(
            f"job {selector!r}: digits alone are a job's number, and those begin with no 0; "
            "for the beginning of an id give so much of it that there is a letter"
        )
    number = int(selector) if len(selector) <= _LONGEST_NUMBER else 0
    for job in state.jobs.values():
        if job.number == number:
            return job
    named = [job for job in state.jobs.values() if job.spec.name == selector]
    hint = f"; the job of that name has the number {named[-1].number}" if named else ""
    if 0 < number <= state.last_number:
        raise NotFound(f"job {selector} is gone: it was removed, or was older than is kept{hint}")
    raise NotFound(f"no job has the number {selector}{hint}; `yard ls -a` lists them")
