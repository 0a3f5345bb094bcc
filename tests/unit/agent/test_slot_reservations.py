"""What does it cost that thousands of slots open and close in one turn?"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from jobyard.agent.attempts.attempt import Slot
from jobyard.agent.attempts.slot_reservations import SlotReservations
from jobyard.agent.sharing.published import Capacity, Held
from jobyard.agent.sharing.reservations import Reservations
from jobyard.agent.system.timers import Timers

MANY = 4096


class Turns:
    """Turns of an agent's loop, and what they were seen to do."""

    def __init__(self, path: Path, reservations: Reservations) -> None:
        self._path = path
        self._timers = Timers()
        self.slots = SlotReservations(self._timers, reservations, self._settled)
        self.opened: list[str] = []
        self.refused: dict[str, str] = {}

    def _settled(self, slots: list[Slot], refused: dict[str, str]) -> None:
        self.opened += [slot.id for slot in slots if slot.id not in refused]
        self.refused.update(refused)

    def end(self) -> None:
        self._timers.run_due()

    @property
    def published(self) -> Any:
        return json.loads(self._path.read_text())["slots"] if self._path.exists() else {}


@pytest.fixture
def reservations() -> Reservations:
    return Reservations(Capacity(cpu_millis=4000, memory_mib=1000, device_mib={}))


@pytest.fixture
def turns(reservations: Reservations, reservations_dir: Path) -> Turns:
    return Turns(reservations_dir / f"{os.getuid()}-{os.getpid()}.json", reservations)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Locks that are taken and files that are written, in order."""
    seen: list[str] = []

    def counted(module: Any, name: str) -> None:
        really = getattr(module, name)

        def call(*words: Any) -> Any:
            seen.append(name)
            return really(*words)

        monkeypatch.setattr(module, name, call)

    counted(fcntl, "flock")
    counted(os, "replace")
    return seen


def slot(number: int, **reserve: int) -> Slot:
    return Slot(f"s{number}", "j", reserve)


def test_all_slots_of_a_turn_are_reserved_under_one_lock_with_one_write(turns: Turns, calls: list[str]) -> None:
    for number in range(MANY):
        turns.slots.open(slot(number, cpu_millis=0))
    assert calls == []
    turns.end()
    assert calls == ["flock", "replace"]
    assert len(turns.opened) == len(turns.published) == MANY


def test_all_slots_of_a_turn_are_given_back_with_one_write(turns: Turns, calls: list[str]) -> None:
    slots = [slot(number, memory_mib=1) for number in range(MANY)]
    for each in slots:
        turns.slots.open(each)
    turns.end()
    for each in slots[1:]:
        turns.slots.close(each)
    turns.end()
    assert calls == ["flock", "replace"] * 2
    assert turns.published == {"s0": {"memory_mib": 1}}


def test_a_slot_that_closes_in_the_turn_in_which_it_opened_is_never_reserved(turns: Turns, calls: list[str]) -> None:
    turns.slots.open(slot(1))
    turns.slots.close(slot(1))
    turns.end()
    assert (turns.opened, calls) == ([], [])


def test_a_slot_may_close_and_open_anew_in_one_turn(turns: Turns) -> None:
    turns.slots.open(slot(1, memory_mib=1))
    turns.end()
    turns.slots.close(slot(1))
    turns.slots.open(slot(1, memory_mib=2))
    turns.end()
    assert turns.published == {"s1": {"memory_mib": 2}}


def test_a_slot_that_changes_before_it_has_its_room_asks_for_what_it_says_then(turns: Turns) -> None:
    changing = slot(1, memory_mib=1)
    turns.slots.open(changing)
    changing.reserve = {"memory_mib": 2}
    turns.slots.change(changing)
    turns.end()
    assert turns.published == {"s1": {"memory_mib": 2}}


def test_of_the_slots_of_one_turn_those_open_that_fit_beside_other_yards(
    turns: Turns, reservations: Reservations, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = Held()
    others.add({"memory_mib": 600})
    others.holders.append("yard of somebody")
    monkeypatch.setattr(reservations, "others", lambda: others)
    for number, mib in enumerate((300, 200, 100, 1)):
        turns.slots.open(slot(number, memory_mib=mib))
    turns.end()
    assert turns.opened == ["s0", "s2"]
    assert turns.refused == {
        "s1": "MiB of memory: 500 wanted in all, 600 of 1000 held by yard of somebody",
        "s3": "MiB of memory: 401 wanted in all, 600 of 1000 held by yard of somebody",
    }
