"""Environment variables of a task: what do they say, and what if they are missing or wrong?"""

from __future__ import annotations

import os
import sys

_warned: set[str] = set()


def warn(sentence: str) -> None:
    """Print it on standard error, once. Never raises: a job may have closed stderr."""
    if sentence in _warned:
        return
    _warned.add(sentence)
    try:
        sys.stderr.write(f"jobyard: {sentence}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass


def whole_number(name: str, default: int | None = None, least: int = 0) -> int | None:
    """The variable as a number; a missing, empty or wrong one is the default, and a wrong one is a warning."""
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        warn(f"{name} is {text!r}, which is not a number of at least {least}; it is taken as missing.")
        return default
    return number


def number_or(name: str, default: int, least: int = 0) -> int:
    found = whole_number(name, None, least)
    return default if found is None else found


def flag(name: str) -> bool:
    """True for 1, true, yes, on, in any case. Missing is false."""
    return os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on")


def rank() -> int:
    """As far as the variables tell. A process that a framework starts beside rank 0 may differ by LOCAL_RANK only."""
    return max(number_or("RANK", number_or("NODE_RANK", 0)), number_or("LOCAL_RANK", 0, least=-1), 0)


def is_rank_zero() -> bool:
    return rank() == 0
