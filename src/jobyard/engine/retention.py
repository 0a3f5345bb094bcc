"""Retention: which jobs that have ended go by themselves now, and why? By their age, their number and their size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from jobyard.model.units import show_bytes, show_seconds


@dataclass(frozen=True, slots=True)
class RetentionRules:
    seconds: float  # after its end a job goes
    unfetched_seconds: float  # the same for one with results that are nowhere else
    least_seconds: float  # number and size take no job that ended so recently
    jobs: int  # at most so many that have ended
    bytes: int  # at most so much of them on the server's disk


class EndedJob(NamedTuple):
    job: str
    finished_at: float
    bytes: int = 0
    is_unfetched: bool = False  # it has results that nobody has fetched
    is_needed: bool = False  # somebody wants it kept, or another job waits for it


class GoingJob(NamedTuple):
    job: str
    why: str  # a sentence


def choose_going(ended: Iterable[EndedJob], rules: RetentionRules, now: float) -> list[GoingJob]:
    """The oldest first. Number and size count all that have ended, and take only what was fetched."""
    oldest = sorted(ended, key=lambda each: (each.finished_at, each.job))
    going: dict[str, GoingJob] = {}
    # 1. Too old.
    for each in oldest:
        if not each.is_needed and now >= goes_at(each, rules):
            going[each.job] = GoingJob(each.job, _too_old(each, rules, now))
    left = [each for each in oldest if each.job not in going]
    jobs, size = len(left), sum(each.bytes for each in left)
    # 2. Too many, and 3. too large.
    for each in left:
        if each.is_needed or each.is_unfetched or now - each.finished_at < rules.least_seconds:
            continue
        if jobs > rules.jobs:
            why = f"more than {rules.jobs} jobs have ended, and it is the oldest of them"
        elif size > rules.bytes and each.bytes:
            why = f"jobs that have ended take more than {show_bytes(rules.bytes)}, and it is the oldest of them"
        else:
            continue
        jobs, size = jobs - 1, size - each.bytes
        going[each.job] = GoingJob(each.job, why)
    return list(going.values())


def goes_at(each: EndedJob, rules: RetentionRules) -> float:
    """When its age alone lets it go."""
    return each.finished_at + (rules.unfetched_seconds if each.is_unfetched else rules.seconds)


def unfetched_soon(ended: Iterable[EndedJob], rules: RetentionRules, until: float) -> list[EndedJob]:
    """Those with results that nobody has fetched which go by their age before `until`, the next one first."""
    found = [each for each in ended if each.is_unfetched and not each.is_needed and goes_at(each, rules) < until]
    return sorted(found, key=lambda each: (each.finished_at, each.job))


def _too_old(each: EndedJob, rules: RetentionRules, now: float) -> str:
    ended = f"it ended {show_seconds(now - each.finished_at)} ago"
    if each.is_unfetched:
        return f"{ended}, and results that nobody fetched are kept for {show_seconds(rules.unfetched_seconds)}"
    return f"{ended}, and jobs are kept for {show_seconds(rules.seconds)}"
