"""Lane notes: what does a lane do now, for an agent that comes later and knows nothing of it?

Each lane has one file: the id of its attempt, padded, and then its slot as JSON.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any, Dict, NamedTuple, Tuple

from jobyard.agent.system import processes

_ATTEMPT_BYTES = 512  # an attempt id is at most 300


class LaneIdentity(NamedTuple):
    """Which process a lane is; no other ever has the same."""

    boot_id: str
    pid: int
    start_time: int


def own_identity() -> LaneIdentity:
    pid = os.getpid()
    return LaneIdentity(processes.boot_id(), pid, processes.start_time(pid))


def note_path(state_dir: str, pid: int, began: int) -> str:
    return "%s/lanes/%d-%d" % (state_dir, pid, began)


def open_note(state_dir: str, pid: int, began: int) -> int:
    """The file of one lane, to write to."""
    os.makedirs(state_dir + "/lanes", mode=0o700, exist_ok=True)
    return os.open(note_path(state_dir, pid, began), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)


def write_attempt(note: int, attempt_id: bytes) -> None:
    os.pwrite(note, attempt_id.ljust(_ATTEMPT_BYTES), 0)


def write_slot(note: int, slot: Dict[str, Any]) -> None:
    """In one write, with blanks over what is left of a longer one: whoever reads meanwhile finds one or the other."""
    before = os.fstat(note).st_size - _ATTEMPT_BYTES
    os.pwrite(note, json.dumps(slot).encode().ljust(max(0, before)), _ATTEMPT_BYTES)


def note_reserve(state_dir: str, pid: int, began: int, reserve: Dict[str, Any]) -> None:
    """Note a changed reservation of a lane's slot. Raises OSError when the lane is gone."""
    path = note_path(state_dir, pid, began)
    _, slot = read_note(path)
    if slot:
        note = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            write_slot(note, {**slot, "reserve": reserve})
        finally:
            os.close(note)


def close_note(state_dir: str, pid: int, began: int) -> None:
    with suppress(OSError):
        os.unlink(note_path(state_dir, pid, began))


def read_note(path: str) -> Tuple[str, Dict[str, Any]]:
    """The attempt and the slot that a lane noted; empty where it had none."""
    with open(path, "rb") as file:
        attempt, slot = file.read(_ATTEMPT_BYTES), file.read()
    try:
        parsed = json.loads(slot)
    except ValueError:
        parsed = {}
    return attempt.strip(b" \0").decode("ascii", "replace"), parsed if isinstance(parsed, dict) else {}
