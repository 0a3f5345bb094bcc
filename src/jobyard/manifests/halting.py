"""Halting: when does a job end before all its tasks have run? GNU parallel's words for it, as a run policy."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from jobyard.errors import UserError
from jobyard.model.job import JobSpec
from jobyard.model.policy import FailurePolicy, RunPolicy

_WORDS = re.compile(r"(now|soon),(fail|success|done)=(\d{1,9})(%?)")
_NUMBERS = {"1": "soon,fail=1", "2": "now,fail=1", "-1": "soon,success=1", "-2": "now,success=1"}
_NEVER = ("never", "0")
_LEAST_OF_SHARE = 3  # as GNU parallel: of a few tasks a share says nothing
WANTED = "now,fail=1 (stop all at the first failure), soon,fail=10% (start no more), now,success=1, or never"


def with_halt(spec: JobSpec, text: str, field: str) -> JobSpec:
    """The job with the run policy that the words mean, in place of what it said of an early end itself.

    A share is of its tasks, so these must be known. So must be whether it is a gang.
    """
    never = _without_halt(spec.policy)
    if text in _NEVER:
        return replace(spec, policy=never)
    match = _WORDS.fullmatch(_NUMBERS.get(text, text))
    if match is None:
        raise UserError(f"cannot read {text!r:.80}; write {WANTED}", field=field)
    when, why, number, percent = match.groups()
    if why == "done":
        raise UserError(
            f"{text!r}: a job does not end by how many tasks have ended; write fail= or success=", field=field
        )
    count = _of_share(int(number), spec.size, text, field) if percent else int(number)
    if count < 1:
        raise UserError(f"{text!r} would end the job before it begins; write 1 or more", field=field)
    if spec.gang:
        raise UserError(f"{text!r}: the tasks of a gang end together; leave it out", field=field)
    policy = replace(never, lets_running_end=when == "soon")
    if why == "fail":
        return replace(spec, policy=replace(policy, max_fails=count - 1))
    return replace(spec, policy=replace(policy, enough_successes=count))


def _without_halt(policy: RunPolicy) -> RunPolicy:
    """A gang that is to go on after a failure still is."""
    how = None if policy.on_failure is FailurePolicy.STOP else policy.on_failure
    return replace(policy, max_fails=None, enough_successes=None, lets_running_end=False, on_failure=how)


def _of_share(percent: int, tasks: int, text: str, field: str) -> int:
    if not 0 < percent <= 100:
        raise UserError(f"{text!r}: a share is 1% to 100%", field=field)
    return max(_LEAST_OF_SHARE, math.ceil(tasks * percent / 100))
