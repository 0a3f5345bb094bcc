"""Running task: which process is a task of this machine now, and what are its directory, environment and container?

For programs beside the agent, `--exec` and `--until-end`: they read what a lane wrote down, and ask nobody.
"""

from __future__ import annotations

import os
import pwd
from typing import Dict, List, NamedTuple, NoReturn, Optional

from jobyard.agent.execution import containers
from jobyard.agent.system import processes
from jobyard.agent_protocol import records
from jobyard.agent_protocol.records import Record, Start


class CannotReach(Exception):
    """What goes after the task's name: `has ended`."""


class RunningTask(NamedTuple):
    pid: int
    start_time: int
    env: Dict[str, str]  # with which it was started; in a container: that of the runtime's client
    directory: str  # where it is now
    group: str  # its cgroup, if it has one of its own
    container: List[str]  # the words up to a container's name, as in `docker exec`; empty: there is none
    container_name: str = ""

    @property
    def is_alive(self) -> bool:
        return processes.is_alive(self.pid, self.start_time)


def become_owner(state_dir: str) -> None:
    """From now on this process has the rights of the agent that keeps its files there, and no more.

    Root may become anybody, and must: what is read next was written by that account. Raises CannotReach.
    """
    try:
        owner = os.stat(state_dir).st_uid
    except FileNotFoundError:
        raise CannotReach("is not on this machine: there is no %s" % state_dir) from None
    except OSError as error:
        raise CannotReach("cannot be reached by you: %s: %s" % (state_dir, error.strerror)) from error
    if owner == os.geteuid():
        return
    if os.geteuid() != 0:
        raise CannotReach("belongs to %s, and only they can go there" % _account(owner))
    try:
        account = pwd.getpwuid(owner)
    except KeyError:
        raise CannotReach("belongs to uid %d, which has no account here" % owner) from None
    os.setgroups(os.getgrouplist(account.pw_name, account.pw_gid))
    os.setgid(account.pw_gid)
    os.setuid(owner)


def _account(uid: int) -> str:
    try:
        return "user %s" % pwd.getpwuid(uid).pw_name
    except KeyError:
        return "uid %d" % uid


def find(state_dir: str, attempt: str) -> RunningTask:
    """The task of this attempt as it runs now. Raises CannotReach, and ValueError for what is no attempt."""
    try:
        record = records.read(records.paths(state_dir, attempt).record)
    except OSError as error:
        raise CannotReach("cannot be reached: its record cannot be read: %s" % error.strerror) from error
    start = _start_of(record)
    assert record is not None
    env = _environment(start)
    directory = _directory(start.pid)
    if not processes.is_alive(start.pid, start.start_time):  # what was read may be another process's
        _has_ended()
    group = record.limit.group if record.limit is not None else ""
    found = RunningTask(start.pid, start.start_time, env, directory, group, [])
    if record.container is None:
        return found
    if not containers.id_of(state_dir, attempt):
        raise CannotReach("has no container yet: its image may still be on its way")
    return found._replace(container=list(record.container.runtime), container_name=record.container.name)


def _start_of(record: Optional[Record]) -> Start:
    """Of exactly the process that the record means, which still runs: its number alone may be another's by now."""
    if record is None or record.ending is not None or record.withdrawn_at is not None:
        _has_ended()
    if record.claim is not None and record.claim.boot_id != processes.boot_id():
        raise CannotReach("has ended: its machine was started again since then")
    if record.start is None:
        raise CannotReach("has not begun yet")
    if not processes.is_alive(record.start.pid, record.start.start_time):
        _has_ended()
    return record.start


def _has_ended() -> NoReturn:
    raise CannotReach("has ended")


def _environment(start: Start) -> Dict[str, str]:
    try:
        with open("/proc/%d/environ" % start.pid, "rb") as file:
            data = file.read()
    except PermissionError as error:  # as of a program that has more rights than who started it
        raise CannotReach("cannot be entered: its environment cannot be read: %s" % error.strerror) from error
    except OSError:
        _has_ended()
    entries = (os.fsdecode(entry).partition("=") for entry in data.split(b"\0") if entry)
    return {name: value for name, sign, value in entries if name and sign}


def _directory(pid: int) -> str:
    try:
        return os.readlink("/proc/%d/cwd" % pid)
    except OSError:
        _has_ended()
