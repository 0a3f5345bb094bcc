"""Asks: how many epochs are over of client processes that do not count them?

The original KubeProfiler, at the version of its guide, asks at the start of each epoch whether it has to stop. It tells
of the end of an epoch from another thread, after an `nvidia-smi`: that may come after the next ask, or never.
"""

from __future__ import annotations

from typing import Dict, Iterable, NamedTuple, Optional

_MOST_PROCESSES = 1024  # of one attempt; what more there are is taken for one


class Lap(NamedTuple):
    """One epoch, as a process told of its end."""

    seconds: float = 0.0
    steps: int = 0


class _Process:
    __slots__ = ("asks", "begun", "ends", "steps")

    def __init__(self) -> None:
        self.asks = 0
        self.begun = 0  # epochs that were over when the newest began
        self.ends = 0
        self.steps = 0  # until the end of its last epoch


class Asks:
    """The k-th ask of a process: k - 1 of its epochs are over, and saved. Of several processes the slowest counts."""

    def __init__(self) -> None:
        self._processes: Dict[str, _Process] = {}
        self._laps: Dict[int, Lap] = {}  # by number, the first being 1
        self._taken = 0
        self._told_from: Optional[int] = None  # the first ask that was answered with a stop

    @property
    def processes(self) -> "tuple[str, ...]":
        return tuple(self._processes)

    def asked(self, process: str, gone: Iterable[str] = ()) -> None:
        """`gone` are processes that run no more: nobody waits for them."""
        for name in gone:
            self._processes.pop(name, None)
        known = self._known(process)
        known.asks += 1
        known.begun = max(known.asks - 1, known.ends)  # an ask that did not arrive is made up for by the ends

    def ended(self, process: str, seconds: float, steps: int) -> None:
        """`steps` are all those of this process."""
        known = self._known(process)
        known.ends += 1
        if known.ends > self._taken:  # the first word of an epoch is enough
            self._laps.setdefault(known.ends, Lap(seconds, max(0, steps - known.steps)))
        known.steps = max(known.steps, steps)

    def _known(self, process: str) -> _Process:
        if process not in self._processes and len(self._processes) >= _MOST_PROCESSES:
            process = ""
        return self._processes.setdefault(process, _Process())

    def told(self, process: str) -> None:
        """The newest ask of this process was answered with a stop."""
        known = self._processes.get(process)
        if known is not None:
            self._told_from = min(known.asks, self._told_from or known.asks)

    def may_be_told(self, process: str) -> bool:
        """Whoever comes first in an epoch decides for all: processes that work together leave in the same epoch."""
        known = self._processes.get(process)
        if known is None or all(known.asks > each.asks for each in self._processes.values() if each is not known):
            return True
        return self._told_from is not None and known.asks >= self._told_from

    def begun_by(self, process: str) -> int:
        known = self._processes.get(process)
        return known.begun if known is not None else 0

    @property
    def begun(self) -> int:
        """Epochs that were over when the newest began, by all who ask."""
        return min((each.begun for each in self._processes.values() if each.asks), default=0)

    @property
    def ended_by_all(self) -> int:
        """Epochs that are over; the last of them may not be saved."""
        return min((max(each.begun, each.ends) for each in self._processes.values() if each.asks), default=0)

    @property
    def over(self) -> int:
        """The same when the processes have ended well by themselves. One whose `nvidia-smi` fails tells of no end."""
        if any(each.ends for each in self._processes.values()):
            return self.ended_by_all
        return min((each.asks for each in self._processes.values()), default=0)

    def take_lap(self, number: int) -> Optional[Lap]:
        """How long this epoch took; None: nobody has told yet. To be taken in order, each once."""
        lap = self._laps.pop(number, None)
        if lap is not None:
            self._taken = number
        return lap
