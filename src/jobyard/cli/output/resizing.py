"""Resizing: which lines of the terminal are those of the last frame, after a person changed its size?"""

from __future__ import annotations

from collections.abc import Sequence


class LinesOnScreen:
    """Where the lines of the last frame stand: a terminal that becomes narrower folds them; one that becomes lower
    moves the first ones out of sight, and shows them again when it becomes higher.

    That is what tmux, VTE and most others do. One that does not is at its first line by then, where there is nothing
    above that could be taken away.
    """

    def __init__(self) -> None:
        self._lengths: list[int] = []  # in columns, of what is in sight
        self._above: list[int] = []  # of what was moved out of sight
        self._rows: int | None = None

    def drawn(self, lengths: Sequence[int], rows: int) -> None:
        """A frame has been drawn in place of the last one."""
        self._lengths, self._rows = list(lengths), rows

    def forget_above(self) -> None:
        """Something else was printed after what is out of sight."""
        self._above.clear()

    def resized(self, columns: int, rows: int) -> int:
        """How many lines more than the frame had are to be taken away."""
        if self._rows is None:
            return 0
        in_sight = [_folded(length, columns) for length in self._lengths]
        more = sum(in_sight) - len(in_sight)
        # 1. Out of sight: the first lines, as the cursor stands in the last one.
        out = sum(in_sight) - rows
        for length, taken in zip(self._lengths, in_sight, strict=True):
            if out <= 0:
                break
            self._above.append(length)
            out -= taken
        # 2. In sight again.
        back = rows - self._rows
        while self._above and back >= (taken := _folded(self._above[-1], columns)):
            self._above.pop()
            back -= taken
            more += taken
        return more


def _folded(length: int, columns: int) -> int:
    """The lines of the terminal that so long a line takes."""
    return max(1, -(-length // columns))
