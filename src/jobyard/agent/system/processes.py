"""Processes: which are there, whose are they, and is this still the same one?"""

from __future__ import annotations

import os
import signal
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional

_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


class Process(NamedTuple):
    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    start_time: int
    rss_kib: int


def boot_id() -> str:
    """Another one after every boot."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def start_time(pid: int) -> int:
    """When the process began, in ticks since boot; 0 when it is gone. With the pid it names a process for good."""
    try:
        descriptor = os.open("/proc/%d/stat" % pid, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        data = os.read(descriptor, 1024)
    except OSError:
        return 0
    finally:
        os.close(descriptor)
    # The name may hold anything, also spaces and brackets: count from its last bracket.
    return int(data[data.rindex(b")") + 2 :].split(b" ", 20)[19])


def inspect(pid: int) -> Optional[Process]:
    """What /proc says of one process; None when it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            data = file.read()
    except OSError:
        return None
    begin, end = data.index(b"("), data.rindex(b")")
    fields = data[end + 2 :].split(b" ")
    name = data[begin + 1 : end].decode("utf-8", "replace")
    parent, group, session, ticks, rss = (int(fields[place]) for place in (1, 2, 3, 19, 21))
    return Process(pid, name, fields[0].decode(), parent, group, session, ticks, rss * _PAGE_KIB)


def is_alive(pid: int, began: int) -> bool:
    """Does exactly this process still run? A zombie does not."""
    process = inspect(pid)
    return process is not None and process.start_time == began and process.state not in "ZX"


def scan() -> Iterator[Process]:
    """Every process that runs, from one pass over /proc; zombies left out."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = inspect(int(name))
            if process is not None and process.state not in "ZX":
                yield process


def by_session(sessions: Iterable[int]) -> Dict[int, List[Process]]:
    """Who runs in each of these sessions, from one pass."""
    members: Dict[int, List[Process]] = {session: [] for session in sessions}
    for process in scan():
        if process.session in members:
            members[process.session].append(process)
        elif process.group in members:  # where setsid is not possible, a task has only its own group
            members[process.group].append(process)
    return members


def signal_sessions(numbers: Mapping[int, int]) -> None:
    """Signal every process of these sessions, each with its number; one that is gone is no error."""
    for leader, number in numbers.items():
        send_group(leader, number)
    for leader, members in by_session(numbers).items():
        for process in members:
            if process.group != leader:
                send(process.pid, numbers[leader])


def send_group(group: int, number: int) -> bool:
    """Signal a process group; False when nobody is in it."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return


def with_environment(entry: str) -> Iterator[Process]:
    """Those that were started with this `NAME=value`, as far as we may see it."""
    wanted = entry.encode()
    for process in scan():
        try:
            with open("/proc/%d/environ" % process.pid, "rb") as file:
                found = wanted in file.read().split(b"\0")
        except OSError:
            continue
        if found:
            yield process


def find_by_environment(entry: str) -> Optional[Process]:
    """A session leader that was started with this `NAME=value`; None if there is none that we may see."""
    return next((process for process in with_environment(entry) if process.session in (process.pid, 0)), None)


def default_signals() -> List[int]:
    """Signals that Python or the agent ignores or handles, and that a task must find at their defaults."""
    names = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGCHLD", "SIGXFSZ", "SIGTSTP")
    return [int(getattr(signal, name)) for name in names]
