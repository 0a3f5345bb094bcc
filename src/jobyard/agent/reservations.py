"""How do yards of different people on one machine keep out of each other's room?"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import stat
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set

from jobyard.agent import processes

DEFAULT_DIRECTORY = "/tmp/jobyard-reservations"
_LARGEST_FILE = 1 << 20
_LOCK_SECONDS = 2.0


class Capacity(NamedTuple):
    """What the machine has."""

    cpu_millis: int
    memory_mib: int
    device_mib: Dict[int, int]


class Held:
    """Sums of what one or several agents hold."""

    def __init__(self) -> None:
        self.cpu_millis = 0
        self.memory_mib = 0
        self.device_mib: Dict[int, int] = {}
        self.whole_devices: Set[int] = set()
        self.holders: List[str] = []

    def add(self, amounts: Dict[str, Any]) -> None:
        """Raises ValueError, TypeError or AttributeError for amounts that are none."""
        self.cpu_millis += max(0, int(amounts.get("cpu_millis") or 0))
        self.memory_mib += max(0, int(amounts.get("memory_mib") or 0))
        for index, mib in (amounts.get("devices") or {}).items():
            self.device_mib[int(index)] = self.device_mib.get(int(index), 0) + max(0, int(mib))
        self.whole_devices.update(int(index) for index in amounts.get("whole_devices") or ())


def device_indices(reserve: Dict[str, Any]) -> List[int]:
    """The devices of which these amounts have something."""
    return sorted({int(index) for index in reserve.get("devices") or {}} | set(reserve.get("whole_devices") or ()))


class Reservations:
    """What this agent holds, published for the others, and what the others hold.

    A file is believed only if the uid that it names owns it and the process that it names, and that process runs.
    Where the directory cannot be used at all, every yard is on its own: work is never refused for that.
    """

    def __init__(self, capacity: Capacity, yard: str = "") -> None:
        self._capacity = capacity
        self._directory = os.environ.get("JOBYARD_RESERVATIONS_DIR") or DEFAULT_DIRECTORY
        self._slots: Dict[str, Dict[str, Any]] = {}
        self._pid = os.getpid()
        self._path = os.path.join(self._directory, "%d-%d.json" % (os.getuid(), self._pid))
        self._start_time = processes.start_time(self._pid)
        self.yard = yard

    def reserve(self, slot: str, amounts: Dict[str, Any]) -> Optional[str]:
        """Hold this for a slot, unless other yards hold too much of it: then a sentence says why not."""
        with self._locked() as has_lock:
            if has_lock is False:
                return "another process has kept the lock on %s for too long" % self._directory
            refusal = self._refusal(amounts)
            if refusal is None:
                self._slots[slot] = amounts
                self._publish()
            return refusal

    def take(self, slot: str, amounts: Dict[str, Any]) -> None:
        """Hold this in any case: what is in it runs already."""
        with self._locked():
            self._slots[slot] = amounts
            self._publish()

    def release(self, slot: str) -> None:
        if self._slots.pop(slot, None) is not None:
            self._publish()

    def release_all(self) -> None:
        self._slots.clear()
        self._publish()

    def others(self) -> Held:
        """What other yards hold now. Files of processes that are gone count for nothing; ours are removed."""
        held = Held()
        try:
            names = os.listdir(self._directory)
        except OSError:
            return held
        for name in sorted(names):
            path = os.path.join(self._directory, name)
            if not name.endswith(".json") or path == self._path:
                continue
            published = _believed(path)
            if published is not None:
                _add_all(held, published)
        return held

    def _refusal(self, amounts: Dict[str, Any]) -> Optional[str]:
        others, mine, wanted = self.others(), Held(), Held()
        wanted.add(amounts)
        for held in [*self._slots.values(), amounts]:
            mine.add(held)
        if not others.holders:
            return None  # how far one yard overbooks itself is its own affair
        who = ", ".join(others.holders)
        for what, want, ours, theirs, all_of_it in (
            ("millicores of cpu", wanted.cpu_millis, mine.cpu_millis, others.cpu_millis, self._capacity.cpu_millis),
            ("MiB of memory", wanted.memory_mib, mine.memory_mib, others.memory_mib, self._capacity.memory_mib),
        ):
            if want and theirs and ours + theirs > all_of_it:
                return "%s: %d wanted in all, %d of %d held by %s" % (what, ours, theirs, all_of_it, who)
        for index in wanted.whole_devices:
            if index in others.whole_devices or others.device_mib.get(index):
                return "device %d is wanted whole, and held by %s" % (index, who)
        for index in wanted.device_mib:
            if index in others.whole_devices:
                return "device %d is held whole by %s" % (index, who)
            theirs, size = others.device_mib.get(index, 0), self._capacity.device_mib.get(index)
            if theirs and size is not None and mine.device_mib[index] + theirs > size:
                return "device %d: %d MiB wanted in all, %d of %d held by %s" % (
                    index,
                    mine.device_mib[index],
                    theirs,
                    size,
                    who,
                )
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
            draft = "%s.%d.tmp" % (self._path, self._pid)
            flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(draft, flags, 0o644), "w") as file:
                os.fchmod(file.fileno(), 0o644)
                json.dump(content, file)
            os.replace(draft, self._path)
        except OSError:
            return

    @contextmanager
    def _locked(self) -> Iterator[Optional[bool]]:
        """True: the lock is ours. False: somebody keeps it. None: there is no directory to lock."""
        descriptor = self._open_directory()
        if descriptor is None:
            yield None
            return
        try:
            yield _lock(descriptor)
        finally:
            os.close(descriptor)  # and the lock with it

    def _open_directory(self) -> Optional[int]:
        try:
            try:
                os.mkdir(self._directory, 0o1777)
                os.chmod(self._directory, 0o1777)  # the umask took something away
            except FileExistsError:
                pass
            return os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None


def _lock(descriptor: int) -> bool:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)


def _believed(path: str) -> Optional[Dict[str, Any]]:
    """What an agent published; None if nobody vouches for it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_FILE:
            return None
        content = json.loads(os.read(descriptor, _LARGEST_FILE))
        uid, pid, began = int(content["uid"]), int(content["pid"]), int(content["start_time"])
        if uid != status.st_uid or not isinstance(content["slots"], dict):
            return None
        if processes.is_alive(pid, began) and content["boot_id"] == processes.boot_id():
            return content if os.stat("/proc/%d" % pid).st_uid == uid else None
        if uid == os.getuid():
            os.unlink(path)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        pass
    finally:
        os.close(descriptor)
    return None


def _add_all(held: Held, published: Dict[str, Any]) -> None:
    theirs = Held()
    try:
        for amounts in published["slots"].values():
            theirs.add(amounts)
    except (ValueError, TypeError, AttributeError):
        return
    held.cpu_millis += theirs.cpu_millis
    held.memory_mib += theirs.memory_mib
    for index, mib in theirs.device_mib.items():
        held.device_mib[index] = held.device_mib.get(index, 0) + mib
    held.whole_devices |= theirs.whole_devices
    held.holders.append("yard of %s (agent %d)" % (_user(int(published["uid"])), int(published["pid"])))


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "uid %d" % uid
