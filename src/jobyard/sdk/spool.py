"""Report spool: how does a report reach the yard? As JSON lines at the end of a file that the agent reads."""

from __future__ import annotations

import os
from math import isfinite

from jobyard.sdk.environment import warn

MOST_WAITING = 200  # reports kept while the file cannot be written; then the oldest go
TYPE_CHECKING = False  # importing `typing` costs more than this whole module
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Record = dict[str, object]


class SpoolWriter:
    """The file of one attempt. Nothing here raises: reports may be lost, training goes on."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._waiting: list[str] = []
        self._is_torn = False  # the last write ended in the middle of a line

    def append(self, records: Sequence[Record]) -> None:
        """All records in one write, so that lines of two processes never mix; what could not be written comes later."""
        if not self._path:
            return
        import json  # only here: a script that never reports does not pay for it

        self._waiting.extend(json.dumps(record, separators=(",", ":"), allow_nan=False) for record in records)
        try:
            self._write()
        except OSError as problem:
            del self._waiting[:-MOST_WAITING]
            warn(f"reports to the yard cannot be written to {self._path} ({problem.strerror}); training goes on.")

    def _write(self) -> None:
        data = ("\n" * self._is_torn + "".join(line + "\n" for line in self._waiting)).encode()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            written = os.write(descriptor, data)
        finally:
            os.close(descriptor)
        if written < len(data):  # the disk is full; what is there of the batch is whole lines and a torn one
            self._is_torn = True
            raise OSError(28, "only a part was written")
        self._waiting.clear()
        self._is_torn = False


def as_numbers(metrics: Mapping[str, object]) -> dict[str, float]:
    """The values that can be reported: finite numbers, and what converts to one, as a tensor of one element."""
    numbers = {}
    for name, value in metrics.items():
        try:
            number = float(value)  # type: ignore[arg-type]
        except Exception:  # whatever a framework's tensor raises
            warn(f"the metric {name!r} is not a number and is not reported.")
            continue
        if isfinite(number):
            numbers[name] = number
    return numbers
