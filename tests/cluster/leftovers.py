"""What a cluster may leave on the machine, and its removal: also after a test run that was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

from tests.hosts.mounts import unmount_below
from tests.waiting import until

CGROUPS = Path("/sys/fs/cgroup")
LOG_LINKS = Path("/var/log/containers")  # the kubelet makes them there, wherever the logs are
PREFIX = "yk-"
PARENT = Path("/tmp")  # short: sockets are made below it


def new_directory() -> tuple[Path, TextIOWrapper]:
    """A directory for one cluster, and its lock: as long as that is held, nobody takes the directory for a leftover.

    The cluster's cgroups and its bridge have the directory's name, so nothing else needs to be remembered.
    """
    for directory in PARENT.glob(f"{PREFIX}*"):
        _clear_if_abandoned(directory)
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=PARENT))
    lock = (directory / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return directory, lock


def _clear_if_abandoned(directory: Path) -> None:
    if directory.is_symlink() or directory.stat().st_uid != os.getuid():
        return
    try:
        lock = (directory / "lock").open("r+")
    except OSError:
        return  # somebody else's, or just being made
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        clear_node(directory / "node")
        remove_bridge(directory.name)
        shutil.rmtree(directory, ignore_errors=True)


def clear_node(directory: Path) -> None:
    """Ends the containers of the node in this directory, and takes its mounts and cgroups away. Repeatable."""
    name = directory.parent.name
    for pid in _shims(directory):
        _kill(pid)
    for root in cgroup_roots():
        for procs in (root / name).rglob("cgroup.procs"):
            for word in procs.read_text().split():
                _kill(int(word))
    for link in LOG_LINKS.glob("*"):
        if link.is_symlink() and link.readlink().is_relative_to(directory):
            link.unlink()
    unmount_below(directory)
    for root in cgroup_roots():
        until(lambda root=root: _remove_tree(root / name))  # type: ignore[misc]


def make_cgroups(name: str) -> None:
    for root in cgroup_roots():
        (root / name).mkdir()
        for setting in ("cpuset.cpus", "cpuset.mems"):  # empty in a new one of version 1: nothing could run there
            if (root / setting).exists() and (text := (root / setting).read_text().strip()):
                (root / name / setting).write_text(text)


def cgroup_roots() -> list[Path]:
    """Where a cgroup has to be made: one place (version 2), or one for each controller (version 1, hybrid)."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [root for root in CGROUPS.iterdir() if (root / "cgroup.procs").exists() and not root.is_symlink()]


def remove_bridge(name: str) -> None:
    subprocess.run(["ip", "link", "delete", name], capture_output=True)


def _shims(directory: Path) -> Iterator[int]:
    """What containerd leaves running when it ends: it names our socket on its command line."""
    socket = os.fsencode(directory / "containerd.sock")
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue  # it has just ended
        if words and b"containerd-shim" in words[0] and socket in words:
            yield int(entry.name)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _remove_tree(path: Path) -> bool:
    for directory, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(directory)
        except OSError:
            return False  # a process in it has not quite ended
    return True
