"""Task ranges: which tasks of a job do words such as `3`, `3,7-9` or `worker/0-3` name?"""

from __future__ import annotations

from jobyard.errors import UserError
from jobyard.model.job import JobSpec


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
