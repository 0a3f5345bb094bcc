"""Memory groups: which cgroup keeps a task within its memory, and what happened there?

One for each limited attempt, below a group of this agent's. The kernel holds the limit, whoever of us is killed. Both
versions of cgroups will do; where neither lets us, the agent watches instead (`memory_watch`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from typing import Iterable, List, NamedTuple, Optional

from jobyard.agent.system import probe, processes, strays

MODE = "JOBYARD_MEMORY_LIMITS"  # of the agent's environment: `cgroup` or `watch` alone; unset: the first that works
_MIB = 1 << 20
_ANSWER_SECONDS = 5.0  # for systemd's answer
_TRIAL = "trial"


class _Files(NamedTuple):
    limit: str
    with_swap: str
    peak: str
    kills: str


_V2 = _Files("memory.max", "memory.swap.max", "memory.peak", "memory.events")
_V1 = _Files("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control")


class MemoryGroups:
    """Makes the groups of one lane's attempts. Where they go is found out when the first one is wanted."""

    def __init__(self, state_dir: str) -> None:
        self._name = name_of(state_dir)
        self._base: Optional[str] = None

    def find(self) -> str:
        """Where they go; empty: nowhere. The first time it takes a while, if systemd has to be asked."""
        if self._base is None:
            self._base = _find(self._name) if os.environ.get(MODE) != "watch" else ""
        return self._base

    def make(self, attempt: str, limit_mib: int) -> str:
        """The directory of a group with this limit; empty where none can be had."""
        base = self.find()
        if not base:
            return ""
        directory = "%s/%s" % (base, attempt)
        try:
            os.makedirs(directory, exist_ok=True)
            _limit(directory, limit_mib)
        except OSError:
            remove(directory)
            self._base = None  # looked for again next time
            return ""
        return directory


def name_of(state_dir: str) -> str:
    return "jobyard-" + hashlib.sha256(os.path.realpath(state_dir).encode()).hexdigest()[:12]


def _limit(directory: str, limit_mib: int) -> None:
    files, size = _files(directory), str(limit_mib * _MIB)
    _write(directory + "/" + files.limit, size)
    with suppress(OSError):  # a kernel that does not count swap
        _write(directory + "/" + files.with_swap, size if files is _V1 else "0")
    with suppress(OSError):  # version 2: all of it ends, not only the largest process
        if files is _V2:
            _write(directory + "/memory.oom.group", "1")


def _files(directory: str) -> _Files:
    return _V1 if os.path.exists(directory + "/" + _V1.limit) else _V2


def peak_kib(directory: str) -> int:
    text = probe.read_text(directory + "/" + _files(directory).peak).strip()
    return int(text) // 1024 if text.isdigit() else 0


def has_killed(directory: str) -> bool:
    """Has the kernel ended somebody in it because its limit was reached?"""
    return bool(probe.count_in(directory + "/" + _files(directory).kills, "oom_kill"))


def remove(directory: str) -> None:
    """End whoever is in it, and take it away. One that is gone is no error; one that stays is swept later."""
    for pause in (0.0, 0.001, 0.01, 0.1):
        for pid in strays.members(directory):
            processes.send(pid, signal.SIGKILL)
        time.sleep(pause)
        try:
            os.rmdir(directory)
            return
        except FileNotFoundError:
            return
        except OSError:  # somebody is just leaving it
            continue


def remove_leftovers(state_dir: str, live: Iterable[str]) -> None:
    """Remove groups that lanes left behind when they were killed, but not those of these attempts."""
    name, kept = name_of(state_dir), set(live)
    for above in probe.cgroup_directories("memory"):
        base = "%s/%s" % (above, name)
        for attempt in _below(base):
            if attempt not in kept and not _is_being_tried(attempt):
                remove("%s/%s" % (base, attempt))
        with suppress(OSError):  # it is not there, or not empty
            os.rmdir(base)


def _is_being_tried(name: str) -> bool:
    kind, _, pid = name.partition("-")
    return kind == _TRIAL and os.path.exists("/proc/" + pid)


def _below(directory: str) -> List[str]:
    try:
        return [entry.name for entry in os.scandir(directory) if entry.is_dir()]
    except OSError:
        return []


# Where they can be


def _find(name: str) -> str:
    """A directory below which groups with limits can be made, and entered; empty: there is none."""
    found = _usable(name)
    if not found and os.getuid() and _enter_own_scope(name):
        found = _usable(name)
    return found


def _usable(name: str) -> str:
    for above in reversed(probe.cgroup_directories("memory")):
        base = "%s/%s" % (above, name)
        if _can_hold(above, base):
            return base
        with suppress(OSError):
            os.rmdir(base)
    return ""


def _can_hold(above: str, base: str) -> bool:
    """Tried out: what an administrator allows cannot be read anywhere."""
    trial = "%s/%s-%d" % (base, _TRIAL, os.getpid())
    try:
        if os.path.exists(above + "/cgroup.controllers"):
            _pass_on(above)
            os.makedirs(base, exist_ok=True)
            _pass_on(base)
        os.makedirs(trial, exist_ok=True)
        _write("%s/%s" % (trial, _files(trial).limit), str(64 * _MIB))
        return _can_enter(trial)
    except OSError:
        return False
    finally:
        with suppress(OSError):
            os.rmdir(trial)


def _pass_on(directory: str) -> None:
    """Version 2: groups below this one have limits of their own. Raises OSError where processes are in it."""
    if "memory" not in probe.read_text(directory + "/cgroup.subtree_control").split():
        _write(directory + "/cgroup.subtree_control", "+memory")


def _can_enter(directory: str) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            enter(directory)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def enter(directory: str) -> None:
    """The process that calls this, and its children from now on. Raises OSError."""
    _write(directory + "/cgroup.procs", "0")


def _enter_own_scope(name: str) -> bool:
    """Ask the user's systemd for a scope in which this lane may make groups. False: there is none, or it refused."""
    busctl = shutil.which("busctl")
    if not busctl:
        return False
    unit = "%s-%d.scope" % (name, os.getpid())
    words = [busctl, "--user", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"]
    words += ["org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "fail"]
    words += ["3", "PIDs", "au", "1", str(os.getpid()), "Delegate", "b", "true"]
    words += ["CollectMode", "s", "inactive-or-failed", "0"]
    no = subprocess.DEVNULL
    try:
        asked = subprocess.run(words, timeout=_ANSWER_SECONDS, check=False, stdin=no, stdout=no, stderr=no)
        return asked.returncode == 0 and _leave_the_top(unit)
    except (OSError, subprocess.SubprocessError):
        return False


def _leave_the_top(unit: str) -> bool:
    """systemd answers before it has moved us. In version 2 a group with processes cannot have groups with limits."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    while time.monotonic() < deadline:
        for directory in probe.cgroup_directories("memory"):
            if os.path.basename(directory) == unit:
                os.makedirs(directory + "/lane", exist_ok=True)
                enter(directory + "/lane")
                return True
        time.sleep(0.01)
    return False


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
