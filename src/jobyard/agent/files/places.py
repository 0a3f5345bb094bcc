"""Places: where on this machine does the agent of a yard keep its files, and where does it listen?"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import stat
from typing import NamedTuple

from jobyard.agent.system import probe

_YARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class Place(NamedTuple):
    state: str
    socket: str


def of_yard(yard: str) -> Place:
    """The same for everybody who asks on this machine. Raises ValueError for what is no yard's id, or OSError."""
    state = state_of(yard, os.path.expanduser("~"))
    name = hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return Place(state, "%s/jobyard-%s.sock" % (runtime_directory(), name))


def state_of(yard: str, home: str) -> str:
    """Where it keeps its files, below this home. Raises ValueError for what is no yard's id."""
    if not _YARD.fullmatch(yard):
        raise ValueError("--yard: not a yard's id: %r" % yard)
    # Homes may be shared between machines; what runs is not.
    machine = re.sub(r"[^A-Za-z0-9_.-]", "_", probe.machine_id())
    return "%s/.local/share/jobyard/agents/%s-%s" % (home, yard, machine)


def runtime_directory() -> str:
    """A directory of our own, on this machine, for sockets and locks; one that a logout does not take away."""
    given, own = os.environ.get("XDG_RUNTIME_DIR") or "", "/run/user/%d" % os.getuid()
    if given and os.path.realpath(given) != own and _is_private(given):
        return given
    if is_lingering() and _is_private(own):  # otherwise it goes with the last login, and the agent stays
        return own
    path = "/tmp/jobyard-%d" % os.getuid()
    os.makedirs(path, mode=0o700, exist_ok=True)
    if not _is_private(path):
        raise PermissionError("%s is not a directory of ours; remove it or set XDG_RUNTIME_DIR" % path)
    return path


def is_lingering() -> bool:
    """Does systemd keep what is this user's when nobody is logged in?"""
    try:
        return os.path.exists("/var/lib/systemd/linger/" + pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:
        return False


def _is_private(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
