"""Reporter: which process of a training reports to the yard, and when is the next report of steps due?"""

from __future__ import annotations

import os

from jobyard.sdk.agreement import torch_ranks
from jobyard.sdk.spool import SpoolWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jobyard.sdk.spool import Record

SILENT_SECONDS = 30.0  # slow steps are reported this often, whatever their number


class Reporter:
    """Rank 0 reports, and only the process that made this: a forked copy stays silent."""

    def __init__(self, *, is_rank_zero: bool, heartbeat: int) -> None:
        self._is_rank_zero = is_rank_zero
        self._heartbeat = heartbeat
        self._pid = os.getpid()
        self._spool = SpoolWriter(os.environ.get("YARD_SPOOL", ""))
        self._reported_steps = 0
        self._reported_at = 0.0

    @property
    def is_own_process(self) -> bool:
        return self._pid == os.getpid()

    def is_due(self, steps: int, now: float) -> bool:
        return steps - self._reported_steps >= self._heartbeat or now - self._reported_at >= SILENT_SECONDS

    def note_steps(self, steps: int) -> None:
        """So many steps are in the next report."""
        self._reported_steps = steps

    def say(self, records: list[Record], now: float) -> None:
        self._reported_at = now
        if records and self._is_rank_zero and self.is_own_process:
            ranks = torch_ranks()
            if ranks is None or ranks.get_rank() == 0:
                self._spool.append(records)
