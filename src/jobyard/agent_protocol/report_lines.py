"""Report lines: which reports are in the bytes of a spool, and what is wrong with the others?"""

from __future__ import annotations

import json
import math
from typing import Any, Dict, Iterator, Optional, cast

LONGEST_LINE = 1 << 16
_TOO_LONG = "is longer than %d bytes and was skipped" % LONGEST_LINE
_LARGEST = 1e15


class Unreadable(Exception):
    """What is wrong with a line, as the end of a sentence that begins with its number."""


class ReportLines:
    """Takes bytes in any pieces. A line without its newline waits for it; what cannot be read is skipped."""

    def __init__(self) -> None:
        self.trouble = ""  # names the first that could not be read
        self._number = 0
        self._partial = b""
        self._is_skipping = False  # within a line that is too long

    def feed(self, data: bytes) -> Iterator[Dict[str, Any]]:
        """The reports that the next bytes complete; to be taken to the end."""
        *lines, partial = (self._partial + data).split(b"\n") if self._partial else data.split(b"\n")
        for line in lines:
            self._number += 1
            if self._is_skipping:
                self._is_skipping = False
            else:
                yield from self._read(line)
        self._partial = b"" if self._is_skipping else partial
        if len(self._partial) > LONGEST_LINE:
            self._say(self._number + 1, _TOO_LONG)
            self._partial, self._is_skipping = b"", True

    def close(self) -> Iterator[Dict[str, Any]]:
        """Nothing more will come: a last line counts without its newline if it is whole."""
        partial, self._partial = self._partial, b""
        if partial.strip():
            self._number += 1
            yield from self._read(partial)

    def passed_over(self, size: int) -> None:
        """So many bytes are not looked at: there is too much. What follows begins within a line."""
        self._partial, self._is_skipping = b"", True
        self.trouble = self.trouble or "%d MiB of reports were passed over: there are too many" % (size >> 20)

    def complain(self, what: str) -> None:
        """Of the line that was read last."""
        self._say(self._number, what)

    def _read(self, line: bytes) -> Iterator[Dict[str, Any]]:
        if not line.strip():
            return
        try:
            report = _parsed(line)
        except Unreadable as error:
            self.complain(str(error))
            return
        yield report

    def _say(self, number: int, what: str) -> None:
        self.trouble = self.trouble or "line %d of the reports %s" % (number, what)


def _parsed(line: bytes) -> Dict[str, Any]:
    if len(line) > LONGEST_LINE:
        raise Unreadable(_TOO_LONG)
    try:
        report = json.loads(line)
    except (ValueError, RecursionError):
        raise Unreadable("is not JSON and was skipped") from None
    if not isinstance(report, dict):
        raise Unreadable("is not a JSON object and was skipped")
    return report


def process_of(report: Dict[str, Any]) -> str:
    """Who reports; empty: the report endpoint could not tell."""
    process = report.get("process")
    return process if isinstance(process, str) else ""


def number_or_none(report: Dict[str, Any], name: str) -> Optional[float]:
    return None if report.get(name) is None else number_in(report, name)


def number_in(report: Dict[str, Any], name: str) -> float:
    """Raises Unreadable if it is none, or none that can be meant."""
    value = report.get(name)
    if not is_number(value):
        raise Unreadable("was skipped: %s must be a number" % name)
    return cast(float, value)


def is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and abs(value) < _LARGEST if isinstance(value, float) else abs(value) < _LARGEST


def readable(text: str) -> str:
    """JSON may escape half a character; whoever passes it on could not write it."""
    return text.encode("utf-8", "replace").decode()
