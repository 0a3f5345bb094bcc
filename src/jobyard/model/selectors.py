"""Selector words: which words mean a job by themselves, so that no job can have them as its name?"""

from __future__ import annotations

NEWEST = ("last", "@")


def other_meaning(name: str) -> str:
    """What the word means wherever a job is named; empty: nothing, and a job can have it as its name."""
    if name in NEWEST:
        return "always means the newest job"
    return "means the job with that number" if name.isascii() and name.isdigit() else ""
