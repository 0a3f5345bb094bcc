"""Slot reservations: when do the slots get what they are to hold? At the end of the turn, all of them at once."""

from __future__ import annotations

from typing import Callable, Dict, List, Set

from jobyard.agent.attempts.attempt import Slot
from jobyard.agent.sharing.reservations import BySlot, Reservations
from jobyard.agent.system.timers import EndOfTurn, Timers


class SlotReservations:
    """Gathers what happens to slots in one turn of the loop, and writes it down under one lock at once.

    A gang has thousands of slots, and each write has all of them.
    """

    def __init__(
        self, timers: Timers, reservations: Reservations, opened: Callable[[List[Slot], Dict[str, str]], None]
    ) -> None:
        """`opened` is called with the slots that were to open, and why some of them are refused."""
        self._reservations = reservations
        self._opened = opened
        self._turn = EndOfTurn(timers, self._write)
        self._opening: Dict[str, Slot] = {}
        self._changed: Dict[str, Slot] = {}
        self._closed: Set[str] = set()

    def open(self, slot: Slot) -> None:
        """It gets its room, unless other yards hold too much."""
        self._opening[slot.id] = slot
        self._turn.ask()

    def change(self, slot: Slot) -> None:
        """It holds what it says now in any case: what is in it runs already."""
        if slot.id not in self._opening:
            self._changed[slot.id] = slot
            self._turn.ask()

    def close(self, slot: Slot) -> None:
        """It gives back what it holds, if it has ever got that."""
        if self._opening.pop(slot.id, None) is None:
            self._changed.pop(slot.id, None)
            self._closed.add(slot.id)
            self._turn.ask()

    def _write(self) -> None:
        opening, self._opening = self._opening, {}
        changed, self._changed = self._changed, {}
        closed, self._closed = self._closed, set()
        if opening or changed or closed:
            refused = self._reservations.update(_amounts(opening), _amounts(changed), closed)
            self._opened(list(opening.values()), refused)


def _amounts(slots: Dict[str, Slot]) -> BySlot:
    return {slot.id: slot.reserve for slot in slots.values()}
