"""Lines: many lines of text as one object, such as a million commands or values."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator


class Lines:
    """Many lines as one text with offsets, so that a million commands are two objects.

    Where a value holds a line break, each ends with NUL instead, as `find -print0` writes names.
    """

    __slots__ = ("_starts", "end", "text")

    def __init__(self, text: str) -> None:
        """`text` ends each line with a newline, or each with NUL."""
        self.text = text
        self.end = "\0" if text.endswith("\0") else "\n"
        self._starts = array("Q", [0])
        position = text.find(self.end)
        while position >= 0:
            self._starts.append(position + 1)
            position = text.find(self.end, position + 1)

    @classmethod
    def of(cls, lines: Iterable[str]) -> Lines:
        """A line that holds NUL is left to the checks, which refuse it."""
        found = list(lines)
        end = "\0" if any("\n" in line for line in found) and not any("\0" in line for line in found) else "\n"
        return cls("".join(f"{line}{end}" for line in found))

    @property
    def has_breaks(self) -> bool:
        """May a line of these hold a line break?"""
        return self.end == "\0"

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.text[self._starts[index] : self._starts[index + 1] - 1]

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))

    def longer_than(self, most: int) -> int:
        """How long the first line is that has more characters; 0: none has. It skips many short lines at a time."""
        start = 0
        while start < len(self.text):
            end = self.text.rfind(self.end, start, start + most + 1)
            if end < 0:
                end = self.text.find(self.end, start)
                length = (end if end >= 0 else len(self.text)) - start
                return length if length > most else 0
            start = end + 1
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lines) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Lines({len(self)})"
