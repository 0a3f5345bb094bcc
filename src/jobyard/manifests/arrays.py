"""Array notation: which array ids did the user mean by `0-99%10`?"""

from __future__ import annotations

import re

from jobyard.errors import UserError
from jobyard.model.job import ArrayRange
from jobyard.model.progressions import TooManyRanges, first_duplicate

MAX_TASKS = 10_000_000  # a typing error (`0-99999999999`) must not become a job

_PIECE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?::([0-9]{1,18}))?)?")
_HELP = "write 0-99, 0-99%10 (at most 10 at once), 1-9:2 (every second) or 1,3,5-7"


def parse_array(text: str, field: str = "--array") -> tuple[ArrayRange, int | None]:
    """The ids in the order written, and the limit after `%`. Raises UserError; no id stands twice."""
    ids, percent, limit_text = text.strip().partition("%")
    limit = None
    if percent:
        if not re.fullmatch(r"[0-9]{1,18}", limit_text) or int(limit_text) < 1:
            raise UserError(f"the limit in {text!r} must be 1 or more; {_HELP}", field=field)
        limit = int(limit_text)
    pieces = [_piece(piece.strip(), text, field) for piece in ids.split(",")]
    if sum(len(_range(piece)) for piece in pieces) > MAX_TASKS:
        raise UserError(f"{text!r} has more than {MAX_TASKS:,} tasks; split it into several jobs", field=field)
    try:
        twice = first_duplicate(map(_range, pieces))
    except TooManyRanges:
        raise UserError(f"the pieces of {text[:40]!r} overlap too often; write them in order", field=field) from None
    if twice is not None:
        raise UserError(f"{text!r} names {twice} twice; each id may stand once", field=field)
    return ArrayRange(tuple(_joined(pieces))), limit


def _piece(piece: str, text: str, field: str) -> tuple[int, int, int]:
    match = _PIECE.fullmatch(piece)
    if not match:
        if re.match(r"-\s*[0-9]", piece):
            raise UserError(f"{text!r} has a negative id; ids start at 0: {_HELP}", field=field)
        raise UserError(f"cannot read {text!r} as array ids; {_HELP}", field=field)
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    step = int(match[3]) if match[3] else 1
    if last < first:
        raise UserError(f"{piece!r} runs backwards; write {last}-{first}", field=field)
    if step < 1:
        raise UserError(f"the step in {piece!r} must be 1 or more; {_HELP}", field=field)
    return first, _range((first, last, step))[-1], step if last > first else 1


def _range(piece: tuple[int, int, int]) -> range:
    first, last, step = piece
    return range(first, last + 1, step)


def _joined(pieces: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Fewer pieces, same ids in the same order: `1,3,5,7` is one piece. Looking an id up is linear in pieces."""
    joined: list[tuple[int, int, int]] = []
    for first, last, step in pieces:
        if joined:
            first_before, last_before, step_before = joined[-1]
            gap = first - last_before
            fits_before = first_before == last_before or step_before == gap
            fits_here = first == last or step == gap
            if gap > 0 and fits_before and fits_here:
                joined[-1] = (first_before, last, gap)
                continue
        joined.append((first, last, step))
    return joined
