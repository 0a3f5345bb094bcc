"""Workload: which jobs, slots and attempts does this agent have now?"""

from __future__ import annotations

from itertools import count
from typing import Any, Dict, List

from jobyard.agent.attempts.attempt import RUNNING, Attempt, Slot


class Workload:
    """Everything that has not ended, by its id, and the jobs that the server has described."""

    def __init__(self) -> None:
        self.attempts: Dict[str, Attempt] = {}
        self.slots: Dict[str, Slot] = {}
        self.jobs: Dict[str, Dict[str, Any]] = {}

    @property
    def running(self) -> List[Attempt]:
        return [attempt for attempt in self.attempts.values() if attempt.state == RUNNING]

    def number(self, slot: Slot) -> int:
        """That of a slot among those of its job: the lowest that is free when it is first asked for."""
        if not slot.number:
            taken = {each.number for each in self.slots.values() if each.job == slot.job}
            slot.number = next(number for number in count(1) if number not in taken)
        return slot.number

    def slots_of(self, jobs: List[str]) -> List[Slot]:
        return [slot for slot in self.slots.values() if slot.job in jobs]
