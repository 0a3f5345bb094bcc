"""Epoch counts: how many epochs are done, of how many, and what is remembered of each?"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

HISTORY = 100  # epochs that a progress remembers


class EpochCount:
    """What a task has told of its epochs; None: it has not."""

    def __init__(self) -> None:
        self.total: Optional[int] = None
        self.at_start: Optional[int] = None
        self.ended: Optional[int] = None
        self.saved: Optional[int] = None

    @property
    def done(self) -> int:
        """Never more than is saved, if it tells of saves."""
        for known in (self.saved, self.ended, self.at_start):
            if known is not None:
                return known
        return 0

    @property
    def reached(self) -> int:
        """Saved or not."""
        return max(self.done, self.ended or 0)

    @property
    def before(self) -> int:
        """Those of earlier attempts."""
        return self.at_start or 0

    @property
    def is_in_last(self) -> bool:
        done = self.done if self.ended is None else self.ended
        return self.total is not None and done >= self.total - 1


class EpochHistory:
    """The newest epochs, and the steps of all of them."""

    def __init__(self) -> None:
        self.epochs: List[Dict[str, Any]] = []
        self.steps = 0

    def ends_with(self, number: int) -> bool:
        return bool(self.epochs) and self.epochs[-1]["number"] == number

    def remember(self, number: int, seconds: float, steps: int, metrics: Dict[str, float]) -> None:
        self.steps += steps
        self.epochs.append({"number": number, "seconds": seconds, "steps": steps, "metrics": metrics})
        del self.epochs[:-HISTORY]

    @property
    def median_seconds(self) -> float:
        return _median(sorted(epoch["seconds"] for epoch in self.epochs if epoch["seconds"]))


class UnsavedEpoch:
    """An epoch that is over and may not be saved yet. Several reports make up its end, and every rank sends them."""

    def __init__(self) -> None:
        self._told: Dict[str, float] = {}
        self._steps_before = 0  # of the attempt, at the end of the last such epoch

    def add(self, name: str, value: float) -> None:
        self._told[name] = value

    @property
    def done(self) -> Optional[float]:
        return self._told.get("done")

    @property
    def seconds(self) -> float:
        return self._told.get("seconds", 0.0)

    @property
    def steps(self) -> int:
        """All those of the attempt."""
        return int(self._told.get("steps", 0))

    @property
    def own_steps(self) -> int:
        return max(0, self.steps - self._steps_before)

    def is_saved(self) -> None:
        """Another one may begin."""
        self._steps_before = max(self.steps, self._steps_before)
        self._told = {}


def _median(ordered: List[float]) -> float:
    if not ordered:
        return 0.0
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
