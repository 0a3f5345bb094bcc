"""What did test processes leave behind that were killed before they could tidy up? Named by pid, so it can be told."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.hosts import processes
from tests.hosts.mounts import unmount_below
from tests.hosts.network import NetworkError, ip

NAMESPACE = re.compile(r"yard-(\d+)-\d+")
DEVICE = re.compile(r"y[bt]?(\d+)-\d+")
DIRECTORY = re.compile(r"yard-hosts-(\d+)-\w+")


def new_directory() -> Path:
    """Short: control sockets may have to live in it, and their paths have 108 bytes."""
    return Path(tempfile.mkdtemp(prefix=f"yard-hosts-{os.getpid()}-", dir="/tmp"))


def remove_directory(path: Path) -> None:
    """Also when disks of hosts are still mounted in it."""
    unmount_below(path)
    shutil.rmtree(path, ignore_errors=True)


def left_by(is_owner: Callable[[int], bool]) -> list[str]:
    """Namespaces, devices and directories of the processes asked for, in words."""
    return [f"{kind} {name}" for kind, name in _named(is_owner)]


def remove() -> None:
    """Remove what belongs to dead processes; safe beside others."""
    for kind, name in _named(lambda pid: not processes.is_alive(pid)):
        if kind == "directory":
            if Path("/tmp", name).stat().st_uid == os.getuid():
                remove_directory(Path("/tmp", name))
        elif os.getuid() == 0:
            with contextlib.suppress(NetworkError):
                ip(f"link delete {name}" if kind == "device" else f"netns delete {name}")


def _named(is_owner: Callable[[int], bool]) -> Iterable[tuple[str, str]]:
    for kind, pattern, place in (
        ("device", DEVICE, "/sys/class/net"),
        ("namespace", NAMESPACE, "/run/netns"),
        ("directory", DIRECTORY, "/tmp"),
    ):
        names = os.listdir(place) if os.path.isdir(place) else []
        for name in names:
            if (found := pattern.fullmatch(name)) and is_owner(int(found[1])):
                yield kind, name
