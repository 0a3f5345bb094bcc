"""Column cutting: which values does a regular expression make of each line? Of some it needs longer than anybody waits.

Nothing ends a search within this process. So one that may take that long is in a process of its own, which runs this
file: standard library only.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence

SECONDS_MOST = 20.0  # a million lines take about two
_IS_QUICK = re.compile(r"[^(){}|*+?]*[*+?]?[^(){}|*+?]*")  # at most one repeat, which has nothing to try again


class CuttingFailed(Exception):
    """In words for whoever wrote the expression."""


def cut_lines(colsep: str, lines: Sequence[str]) -> list[list[str]]:
    """As `re.split`, without the groups of the pattern. Raises CuttingFailed."""
    if _IS_QUICK.fullmatch(colsep):
        return _cut(colsep, lines)
    import subprocess  # on first use: a plain command does not pay for it

    command = (sys.executable, "-I", "-S", __file__)
    try:
        asked = json.dumps([colsep, list(lines)])
        done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=SECONDS_MOST)
    except subprocess.TimeoutExpired:
        raise CuttingFailed(
            f"{colsep!r:.80} has not cut the lines within {SECONDS_MOST:g} seconds; "
            "a repeat inside a repeat, as in (a+)+, may never end: write one repeat"
        ) from None
    if done.returncode:
        why = ["it was ended", *done.stderr.strip().splitlines()][-1]
        raise CuttingFailed(f"{colsep!r:.80} could not cut the lines: {why}; write a simpler one")
    found: list[list[str]] = json.loads(done.stdout)
    return found


def _cut(colsep: str, lines: Iterable[str]) -> list[list[str]]:
    pattern = re.compile(colsep)
    return [_values(pattern, line) for line in lines]


def _values(pattern: re.Pattern[str], line: str) -> list[str]:
    ends = [(match.start(), match.end()) for match in pattern.finditer(line) if match.end() > match.start()]
    begins = [0, *(end for _, end in ends)]
    return [line[begin:end] for begin, end in zip(begins, [*(start for start, _ in ends), len(line)], strict=True)]


if __name__ == "__main__":
    json.dump(_cut(*json.load(sys.stdin)), sys.stdout)
