"""Probe: what does this machine have, and how much of it is in use?"""

from __future__ import annotations

import math
import os
import socket
from typing import Dict, List, NamedTuple, Optional

_NO_LIMIT_BYTES = 1 << 60  # cgroup v1 writes "no limit" as a number near 2**63


class Memory(NamedTuple):
    total_mib: int
    available_mib: int


def cpu_millis() -> int:
    """What we may use: the cores that we may run on, or a cgroup's quota if that is less."""
    millis = len(os.sched_getaffinity(0)) * 1000
    for directory in cgroup_directories("cpu"):
        quota = _cpu_quota_millis(directory)
        if quota is not None:
            millis = min(millis, quota)
    return max(millis, 1)


def _cpu_quota_millis(directory: str) -> Optional[int]:
    words = read_text(directory + "/cpu.max").split()
    if len(words) < 2:
        words = [
            read_text(directory + "/cpu.cfs_quota_us").strip(),
            read_text(directory + "/cpu.cfs_period_us").strip(),
        ]
    try:
        quota, period = int(words[0]), int(words[1])
    except ValueError:  # "max", or no such file
        return None
    return math.ceil(quota * 1000 / period) if quota > 0 and period > 0 else None


def machine_memory_mib() -> int:
    """Of the whole machine, whatever our cgroup has."""
    return _meminfo().get("MemTotal", 0) // 1024


def memory() -> Memory:
    """Of the machine, or of our cgroup where that has less."""
    info = _meminfo()
    total, available = info.get("MemTotal", 0), info.get("MemAvailable", info.get("MemFree", 0))
    for directory in cgroup_directories("memory"):
        limit = _bytes(directory, "memory.max", "memory.limit_in_bytes")
        used = _bytes(directory, "memory.current", "memory.usage_in_bytes")
        if limit is not None and limit < _NO_LIMIT_BYTES and limit // 1024 < total:
            total = limit // 1024
            available = min(available, max(0, (limit - (used or 0) + _file_cache(directory)) // 1024))
    return Memory(total // 1024, min(available, total) // 1024)


def _file_cache(directory: str) -> int:
    """What a cgroup counts as used and gives back when asked."""
    for line in read_text(directory + "/memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file") and value.isdigit():
            return int(value)
    return 0


def _bytes(directory: str, *names: str) -> Optional[int]:
    for name in names:
        text = read_text(directory + "/" + name).strip()
        if text.isdigit():
            return int(text)
    return None


def _meminfo() -> Dict[str, int]:
    result = {}
    for line in read_text("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            result[name] = int(words[0])
    return result


def cgroup_directories(controller: str) -> List[str]:
    """Our cgroup and those above it, in version 1 or 2: a limit on any of them binds us."""
    found = []
    for line in read_text("/proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        elif controller in controllers.split(","):
            roots = ["/sys/fs/cgroup/" + controllers, "/sys/fs/cgroup/" + controller]
        else:
            continue
        for root in roots:
            parts = [part for part in path.split("/") if part and part != ".."]
            found += ["/".join([root, *parts[:depth]]) for depth in range(len(parts) + 1)]
    return [directory for directory in dict.fromkeys(found) if os.path.isdir(directory)]


def load() -> float:
    return os.getloadavg()[0]


def host() -> str:
    return socket.gethostname()


def machine_id() -> str:
    """The same over reboots, another one on every machine; homes may be shared, this is not."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        text = read_text(path).strip()
        if text:
            return text
    return host()


def count_in(path: str, name: str) -> Optional[int]:
    """The number beside a name in a file of such lines; None if there is none."""
    for line in read_text(path).splitlines():
        found, _, value = line.partition(" ")
        if found == name and value.strip().isdigit():
            return int(value)
    return None


def read_text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""
