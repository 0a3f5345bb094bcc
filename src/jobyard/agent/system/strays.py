"""Strays: which processes did a task leave behind, and are they gone?

A task's processes are its session, and whoever else descends from the lane that started it: a daemon that began a
session of its own becomes the lane's child when its parent ends, because the lane is a subreaper.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Any, Dict, List, Set

from jobyard.agent.system import processes
from jobyard.agent.system.processes import Process
from jobyard.agent_protocol import clock

try:
    import ctypes
except ImportError:  # a Python that was built without
    ctypes = None  # type: ignore[assignment]

FORKING = "it left processes behind that fork faster than they can be ended"
LINGER_SECONDS = 1.0  # what `cmd > >(tee log)` leaves behind may still write for so long
_NAMED_MOST = 3
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # of <linux/prctl.h>


def become_subreaper() -> bool:
    """From now on orphaned descendants become our children. False: the kernel cannot do that."""
    if ctypes is None:
        return False
    try:
        libc: Any = ctypes.CDLL(None)
        return bool(libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def die_with(parent: int) -> None:
    """From now on the death of our parent is ours. Where the kernel cannot do that, we outlive it."""
    if ctypes is not None:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def await_child(pid: int) -> "tuple[int, Any]":
    """Status and usage of this child when it has ended; others that end meanwhile are reaped and forgotten."""
    while True:
        found, status, usage = os.wait4(-1, 0)
        if found == pid:
            return status, usage


def see_off(leader: int, grace: float, group: str = "", is_contained: bool = False) -> str:
    """An attempt is over when its processes are: wait a moment for what it left behind, then end it.

    `group` is a cgroup of its own, if it has one. What the client of a container leaves behind is its runtime's, and
    stays. Returns who could not be ended, in words; usually nobody.
    """
    lane = 0 if is_contained else os.getpid()
    if not _is_any_left(leader, lane):  # costs two system calls: hundreds of tasks a second come here
        return ""
    steps = ((0, LINGER_SECONDS), (signal.SIGTERM, max(grace, LINGER_SECONDS)), (signal.SIGKILL, LINGER_SECONDS))
    for number, seconds in steps:
        if number:
            for process in _left(leader, lane, group):
                processes.send(process.pid, number)
        deadline, pause = clock.seconds() + seconds, 0.001
        while clock.seconds() < deadline:
            time.sleep(pause)
            pause = min(pause * 2, 0.064)
            # Zombies that nobody reaps keep a group alive in name only, but looking closer costs a pass over /proc.
            if not _is_any_left(leader, lane):
                return ""
            # Reap whoever ended meanwhile: an idle lane would keep it as a zombie. Who forks and ends all the time is
            # hardly ever seen, but is a child of ours.
            if pause == 0.064 and not _left(leader, lane, group) and not (_reap() and lane):
                return ""
    return _told(_left(leader, lane, group)) or (FORKING if _reap() and lane else "")


def _reap() -> bool:
    """Forget every child that has ended; are there others?"""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _is_any_left(leader: int, lane: int) -> bool:
    return (_reap() and lane != 0) or processes.send_group(leader, 0)


def _left(leader: int, lane: int, group: str) -> List[Process]:
    return of_task(list(processes.scan()), leader, lane, members(group) if group else set())


def of_task(found: List[Process], leader: int, lane: int, also: Set[int]) -> List[Process]:
    """Those of all processes that are the task's: its session, what descends from its lane, and `also` these pids."""
    parents = {process.pid: process.parent for process in found}
    belongs: Dict[int, bool] = {leader: True}
    return [
        process
        for process in found
        if leader in (process.pid, process.session, process.group)
        or process.pid in also
        or (lane and process.pid != lane and _descends(process.pid, lane, parents, belongs))
    ]


def _descends(pid: int, ancestor: int, parents: Dict[int, int], known: Dict[int, bool]) -> bool:
    path: List[int] = []
    while pid not in known and pid in parents and pid != ancestor and len(path) < len(parents):
        path.append(pid)
        pid = parents[pid]
    answer = pid == ancestor or known.get(pid, False)
    known.update(dict.fromkeys(path, answer))
    return answer


def members(group: str) -> Set[int]:
    try:
        with open(group + "/cgroup.procs") as file:
            return {int(line) for line in file}
    except (OSError, ValueError):
        return set()


def _told(left: List[Process]) -> str:
    if not left:
        return ""
    names = ", ".join("%s (pid %d)" % (process.name, process.pid) for process in left[:_NAMED_MOST])
    more = " and %d more" % (len(left) - _NAMED_MOST) if len(left) > _NAMED_MOST else ""
    return "it left processes behind that could not be ended: %s%s" % (names, more)
