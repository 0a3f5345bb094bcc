"""Reservations: how do yards of different people on one machine keep out of each other's room?"""

from __future__ import annotations

import json
import os
from typing import Any, Collection, Dict, List, Mapping, Optional

from jobyard.agent.sharing.directory_lock import DirectoryLock, owner_of
from jobyard.agent.sharing.published import Capacity, Held, read_all
from jobyard.agent.system import processes

DEFAULT_DIRECTORY = "/tmp/jobyard-reservations"
Amounts = Dict[str, Any]
BySlot = Mapping[str, Amounts]
_NOTHING: BySlot = {}


def device_indices(reserve: Dict[str, Any]) -> List[int]:
    """The devices of which these amounts have something."""
    return sorted({int(index) for index in reserve.get("devices") or {}} | set(reserve.get("whole_devices") or ()))


class Reservations:
    """What this agent holds, published for the others, and what the others hold.

    Where the directory or its lock cannot be had, every yard is on its own: work is never refused for that.
    """

    def __init__(self, capacity: Capacity, yard: str = "") -> None:
        self._capacity = capacity
        self._directory = os.environ.get("JOBYARD_RESERVATIONS_DIR") or DEFAULT_DIRECTORY
        self._lock = DirectoryLock(self._directory)
        self._publish_problem = ""
        self._slots: Dict[str, Dict[str, Any]] = {}
        self._pid = os.getpid()
        self._path = os.path.join(self._directory, "%d-%d.json" % (os.getuid(), self._pid))
        self._start_time = processes.start_time(self._pid)
        self.yard = yard

    def update(self, wanted: BySlot, held: BySlot = _NOTHING, released: Collection[str] = ()) -> Dict[str, str]:
        """In one go: give back what is `released`, hold what is `held` in any case, and of what is `wanted` what fits.

        Returns why the rest was refused, a sentence for each slot: other yards hold too much of it.
        """
        with self._lock.held():
            for slot in released:
                self._slots.pop(slot, None)
            self._slots.update(held)
            refused = self._hold(wanted) if wanted else {}
            if held or released or len(refused) < len(wanted):
                self._publish()
        return refused

    def release_all(self) -> None:
        self._slots.clear()
        self._publish()

    def others(self) -> Held:
        """What other yards hold now, and what was doubtful about it."""
        held = read_all(self._directory, self._path, self._capacity)
        if self._lock.problem:
            with self._lock.held():
                pass  # it may be free again
        for problem in (self._lock.problem, self._publish_problem):
            if problem:
                held.doubt(problem)
        return held

    def _hold(self, wanted: BySlot) -> Dict[str, str]:
        others, mine, refused = self.others(), Held(), {}
        if not others.holders:  # how far one yard overbooks itself is its own affair
            self._slots.update(wanted)
            return {}
        for amounts in self._slots.values():
            mine.add(amounts)
        for slot, amounts in wanted.items():
            refusal = self._refusal(amounts, mine, others)
            if refusal is None:
                self._slots[slot] = amounts
                mine.add(amounts)
            else:
                refused[slot] = refusal
        return refused

    def _refusal(self, amounts: Amounts, held: Held, others: Held) -> Optional[str]:
        """Why this cannot be had beside what we and others hold; None: it can."""
        wanted, who = Held(), ", ".join(others.holders)
        wanted.add(amounts)
        for what, want, ours, theirs, all_of_it in (
            ("millicores of cpu", wanted.cpu_millis, held.cpu_millis, others.cpu_millis, self._capacity.cpu_millis),
            ("MiB of memory", wanted.memory_mib, held.memory_mib, others.memory_mib, self._capacity.memory_mib),
        ):
            if want and theirs and ours + want + theirs > all_of_it:
                return "%s: %d wanted in all, %d of %d held by %s" % (what, ours + want, theirs, all_of_it, who)
        for index in wanted.whole_devices:
            if index in others.whole_devices or others.device_mib.get(index):
                return "device %d is wanted whole, and held by %s" % (index, who)
        for index, want in wanted.device_mib.items():
            if index in others.whole_devices:
                return "device %d is held whole by %s" % (index, who)
            theirs, size = others.device_mib.get(index, 0), self._capacity.device_mib.get(index)
            ours = held.device_mib.get(index, 0) + want
            if theirs and size is not None and ours + theirs > size:
                return "device %d: %d MiB wanted in all, %d of %d held by %s" % (index, ours, theirs, size, who)
        return None

    def _publish(self) -> None:
        try:
            if not self._slots:
                os.unlink(self._path)
                return
            content = {
                "uid": os.getuid(),
                "pid": self._pid,
                "start_time": self._start_time,
                "boot_id": processes.boot_id(),
                "yard": self.yard,
                "slots": self._slots,
            }
            self._write(content)
            self._publish_problem = ""
        except FileNotFoundError:
            return  # there was nothing to take back, or there is no directory
        except OSError as error:
            words = (self._path, owner_of(self._path), error.strerror)
            self._publish_problem = "others do not see what is held here: %s%s: %s" % words

    def _write(self, content: Dict[str, Any]) -> None:
        # A name that nobody can foresee: one that is there may be a pipe of somebody else's, or a link.
        draft = "%s.%s.tmp" % (self._path, os.urandom(6).hex())
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        descriptor = os.open(draft, flags, 0o644)
        try:
            with os.fdopen(descriptor, "w") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(json.dumps(content))  # not json.dump: that is the slow encoder, written in Python
            os.replace(draft, self._path)
        except OSError:
            os.unlink(draft)
            raise
