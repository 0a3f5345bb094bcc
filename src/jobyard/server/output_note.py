"""Output note: up to which row of the journal were the files of `--output` written, and which of them are missing?

It is on disk, so that a server that starts later goes on from there: no row counts as done whose files are neither
written nor named here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jobyard.engine.intervals import IntervalSet

FILE = "outputs.row"


@dataclass
class MissingFiles:
    """Of one job."""

    tasks: IntervalSet = field(default_factory=IntervalSet)
    why: str = ""  # the last one could not be written


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
            job: MissingFiles(IntervalSet((int(first), int(last)) for first, last in tasks), str(why))
            for job, (tasks, why) in noted["missing"].items()
        }

    def put(self, job: str, task: int, why: str) -> None:
        """`why` its file is missing; empty: it is written, or nobody wants it any more."""
        known = self.missing.setdefault(job, MissingFiles())
        if why:
            known.tasks.add(task)
            known.why = why
        else:
            known.tasks.remove(task)
        if not len(known.tasks):
            del self.missing[job]

    def all_missing(self) -> Iterator[tuple[str, int]]:
        """As it is now, whatever is changed meanwhile."""
        yield from [(job, task) for job, known in self.missing.items() for task in known.tasks]

    def save(self) -> None:
        """Raises OSError; then what was saved before is still there."""
        row = self.row
        missing = {job: (list(known.tasks.ranges()), known.why) for job, known in self.missing.items()}
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps({"row": row, "missing": missing}) + "\n")
        draft.replace(self._path)
        self.saved_row = row
