"""Output note: up to which row of the journal were the files of `--output` written, and which of them are missing?

It is on disk, so that a server that starts later goes on from there: no row counts as done whose files are neither
written nor named here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jobyard.engine.intervals import IntervalSet

FILE = "outputs.row"


@dataclass
class MissingFiles:
    """Of one job. A task is in one of the two."""

    failed: IntervalSet = field(default_factory=IntervalSet)
    slow: IntervalSet = field(default_factory=IntervalSet)  # being written, or before long
    why_failed: str = ""  # the last one
    why_slow: str = ""

    def __len__(self) -> int:
        return len(self.failed) + len(self.slow)

    @property
    def tasks(self) -> IntervalSet:
        return self.failed | self.slow

    def why(self, task: int | None = None) -> str:
        """Of this task alone, or of all; empty where none is missing."""
        failed, slow = (len(each) > 0 if task is None else task in each for each in (self.failed, self.slow))
        return "; ".join(why for why, is_so in ((self.why_failed, failed), (self.why_slow, slow)) if is_so)


class OutputNote:
    """`row` and `missing` are changed by its owner, who saves them. `saved_row` is what is on disk."""

    def __init__(self, directory: Path, newest_row: int) -> None:
        """A yard that has no note yet begins where it is; one whose note is damaged writes all that it knows of."""
        self._path = directory / FILE
        self.row, self.missing = newest_row, dict[str, MissingFiles]()
        try:
            self._read(self._path.read_text(), newest_row)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            self.row = 0
        self.saved_row = self.row

    def _read(self, text: str, newest_row: int) -> None:
        noted = json.loads(text)
        if isinstance(noted, int):  # of the first yards that had files
            noted = {"row": noted, "missing": {}}
        self.row = min(int(noted["row"]), newest_row)
        self.missing = {
            job: MissingFiles(_intervals(tasks), _intervals(slow[0] if slow else ()), str(why), *map(str, slow[1:]))
            for job, (tasks, why, *slow) in noted["missing"].items()
        }

    def put(self, job: str, task: int, why: str, *, is_slow: bool = False) -> None:
        """`why` its file is missing; empty: it is written, or nobody wants it any more."""
        known = self.missing.setdefault(job, MissingFiles())
        known.failed.remove(task)
        known.slow.remove(task)
        if why and is_slow:
            known.slow.add(task)
            known.why_slow = why
        elif why:
            known.failed.add(task)
            known.why_failed = why
        if not len(known):
            del self.missing[job]

    def all_missing(self) -> Iterator[tuple[str, int]]:
        """As it is now, whatever is changed meanwhile."""
        yield from [(job, task) for job, known in self.missing.items() for task in known.tasks]

    def save(self) -> None:
        """Raises OSError; then what was saved before is still there."""
        row = self.row
        missing = {
            job: (list(known.failed.ranges()), known.why_failed, list(known.slow.ranges()), known.why_slow)
            for job, known in self.missing.items()
        }
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps({"row": row, "missing": missing}) + "\n")
        draft.replace(self._path)
        self.saved_row = row


def _intervals(ranges: Iterable[tuple[int, int]]) -> IntervalSet:
    return IntervalSet((int(first), int(last)) for first, last in ranges)
