"""Published reservations: which files that other users' agents left in a shared directory are to be believed?

Everybody may write there. A file counts if its owner, its name and the process that it names agree, that process runs,
and what it claims could be held on this machine at all. What does not count is left to what is measured; who tried is
told to people.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import stat
from contextlib import suppress
from itertools import islice
from typing import Any, Dict, List, NamedTuple, Optional, Set

from jobyard.agent.system import processes

_NAME = re.compile(r"(0|[1-9][0-9]{0,9})-([1-9][0-9]{0,9})\.json(\.[0-9a-f]+\.tmp)?")
_LARGEST_FILE = 1 << 20
_MOST_FILES = 2000  # then only those are looked for whose process runs
_MOST_DOUBTS = 5
_CPU_OVERBOOKED = 2  # a yard may promise more cores than there are, and never more memory
_PERCENT_MOST = 1000  # of a device's compute; what is claimed beyond it says no more
_WRONG = (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError)


class Capacity(NamedTuple):
    """What we may have: all of the machine, or what our cgroup gives us of it."""

    cpu_millis: int
    memory_mib: int
    device_mib: Dict[int, int]
    machine_cpu_millis: int = 0  # of the whole machine; another agent's cgroup may be larger than ours
    machine_memory_mib: int = 0


class Held:
    """Sums of what one or several agents hold."""

    def __init__(self) -> None:
        self.cpu_millis = 0
        self.memory_mib = 0
        self.device_mib: Dict[int, int] = {}
        self.device_percent: Dict[int, int] = {}
        self.whole_devices: Set[int] = set()
        self.holders: List[str] = []
        self.doubts: List[str] = []  # for people: who claims what cannot be

    def add(self, amounts: Dict[str, Any]) -> None:
        """Raises ValueError, TypeError or AttributeError for amounts that are none."""
        self.cpu_millis += _amount(amounts.get("cpu_millis") or 0)
        self.memory_mib += _amount(amounts.get("memory_mib") or 0)
        for index, mib in (amounts.get("devices") or {}).items():
            self.device_mib[int(index)] = self.device_mib.get(int(index), 0) + _amount(mib)
        for index, percent in (amounts.get("device_percent") or {}).items():
            self.device_percent[int(index)] = self.device_percent.get(int(index), 0) + _amount(percent)
        self.whole_devices.update(_amount(index) for index in amounts.get("whole_devices") or ())

    def take(self, other: "Held", capacity: Capacity) -> None:
        """The same of another, as far as it can be ours: what our cgroup could not hold takes no room in it."""
        if other.cpu_millis <= _CPU_OVERBOOKED * capacity.cpu_millis:
            self.cpu_millis += min(other.cpu_millis, capacity.cpu_millis)
        if other.memory_mib <= capacity.memory_mib:
            self.memory_mib += other.memory_mib
        for index, mib in other.device_mib.items():
            if index in capacity.device_mib:
                self.device_mib[index] = self.device_mib.get(index, 0) + mib
        for index, percent in other.device_percent.items():
            if index in capacity.device_mib:
                self.device_percent[index] = min(_PERCENT_MOST, self.device_percent.get(index, 0) + percent)
        self.whole_devices |= other.whole_devices & set(capacity.device_mib)

    def doubt(self, sentence: str) -> None:
        if sentence not in self.doubts and len(self.doubts) < _MOST_DOUBTS:
            self.doubts.append(sentence)


def read_all(directory: str, own_path: str, capacity: Capacity) -> Held:
    """What all others hold now. Files of processes that are gone count for nothing; ours are removed."""
    held = Held()
    for name in _names(directory, held):
        path = os.path.join(directory, name)
        if path != own_path:
            _read(path, held, capacity)
    return held


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "uid %d" % uid


def _names(directory: str, held: Held) -> List[str]:
    """Of the files that may be reservations. Many thousands of them cost no more than the processes that there are."""
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, _MOST_FILES + 1)]
    except OSError:
        return []
    if len(names) <= _MOST_FILES:
        return sorted(name for name in names if _NAME.fullmatch(name))
    owners = [found.st_uid for found in (_status(os.path.join(directory, name)) for name in names) if found]
    if owners:
        most = max(set(owners), key=owners.count)
        held.doubt("%s holds more than %d files, most of them of %s" % (directory, _MOST_FILES, user_name(most)))
    running = ((found.st_uid, pid) for pid, found in _processes())
    return ["%d-%s.json" % pair for pair in running]


def _processes() -> "List[tuple[str, os.stat_result]]":
    found = ((name, _status("/proc/" + name)) for name in os.listdir("/proc") if name.isdigit())
    return [(name, status) for name, status in found if status is not None]


def _status(path: str) -> Optional[os.stat_result]:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _read(path: str, held: Held, capacity: Capacity) -> None:
    """Add what one file says, if it is believed."""
    match = _NAME.fullmatch(os.path.basename(path))
    found = _status(path)
    if match is None or found is None:
        return
    uid, pid = int(match[1]), int(match[2])
    process = _status("/proc/%d" % pid)
    if process is None:
        if found.st_uid == os.getuid() == uid:
            _remove(path)
        return
    if match[3]:
        return  # being written
    owner = "yard of %s (agent %d)" % (user_name(found.st_uid), pid)
    if found.st_uid != uid:
        held.doubt("ignored: %s belongs to %s" % (path, user_name(found.st_uid)))
        return
    if process.st_uid != uid:
        return  # the number of a process that is gone, and that somebody else's has now
    try:
        content = _content(path)
        if int(content["pid"]) != pid or int(content["uid"]) != uid:
            raise ValueError("it names another process")
        if not processes.is_alive(pid, int(content["start_time"])) or content["boot_id"] != processes.boot_id():
            if uid == os.getuid():
                _remove(path)
            return
        theirs = _sum(content["slots"], capacity)
    except OSError:
        return
    except _WRONG as error:
        held.doubt("ignored: what %s claims: %s" % (owner, str(error)[:200]))
        return
    held.take(theirs, capacity)
    held.holders.append(owner)


def _content(path: str) -> Dict[str, Any]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_FILE:
            raise ValueError("it is no file of a sensible size")
        content = json.loads(os.read(descriptor, _LARGEST_FILE), parse_int=_whole, parse_constant=_whole)
    finally:
        os.close(descriptor)
    if not isinstance(content, dict):
        raise ValueError("it is no reservation")
    return content


def _sum(slots: Dict[str, Any], capacity: Capacity) -> Held:
    """Raises one of _WRONG where no yard could hold this here."""
    theirs = Held()
    for amounts in slots.values():
        theirs.add(amounts)
    memory_mib = max(capacity.memory_mib, capacity.machine_memory_mib)
    cpu_millis = max(capacity.cpu_millis, capacity.machine_cpu_millis)
    if theirs.memory_mib > memory_mib:
        raise ValueError("%d MiB of memory, and the machine has %d" % (theirs.memory_mib, memory_mib))
    if theirs.cpu_millis > _CPU_OVERBOOKED * cpu_millis:
        raise ValueError("%d millicores, and the machine has %d" % (theirs.cpu_millis, cpu_millis))
    for index, mib in theirs.device_mib.items():
        if mib > capacity.device_mib.get(index, mib):
            raise ValueError("%d MiB of device %d, which has %d" % (mib, index, capacity.device_mib[index]))
    return theirs


def _whole(text: str) -> int:
    if len(text) > 15:
        raise ValueError("a number of %d digits" % len(text))
    return int(text)


def _amount(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("%.40r is no amount" % (value,))
    return value


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
