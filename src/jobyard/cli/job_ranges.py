"""Job ranges: which jobs do words as `3-7`, `3-` and `1,4-6` name? Answered from the list of jobs that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from jobyard.client.api import YardClient
from jobyard.errors import NotFound, UserError

_DIGITS = "[0-9]{1,18}"
_PIECE = rf"{_DIGITS}(?:-(?:{_DIGITS})?)?"
_SEVERAL = re.compile(rf"{_PIECE}(?:,{_PIECE})*")  # all digits and no dash or comma: a number, which the server finds


def each_job(client: YardClient, words: Sequence[str]) -> tuple[str, ...]:
    """The words with a number for each job of a range that is there; a job of just that name comes first.

    Raises NotFound where a range has none, and UserError where it ends before it begins.
    """
    if not any(map(_may_be_range, words)):
        return tuple(words)
    jobs = client.jobs(all=True)
    names, numbers = {job.name for job in jobs}, sorted(job.number for job in jobs)
    found: list[str] = []
    for word in words:
        found += _expanded(word, numbers) if _may_be_range(word) and word not in names else [word]
    return tuple(dict.fromkeys(found))


def _may_be_range(word: str) -> bool:
    return not word.isdigit() and _SEVERAL.fullmatch(word) is not None


def _expanded(word: str, numbers: Sequence[int]) -> Iterator[str]:
    for piece in word.split(","):
        first, dash, last = piece.partition("-")
        if not dash:  # the server says what is wrong with one that is not there
            yield piece
            continue
        if last and int(last) < int(first):
            raise UserError(f"jobs {piece!r}: job {last} comes before job {first}; write {last}-{first}")
        there = [number for number in numbers if int(first) <= number and (not last or number <= int(last))]
        if not there:
            raise NotFound(f"no job has a number in {piece}; `yard ls -a` lists them")
        yield from map(str, there)
