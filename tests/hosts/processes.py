"""Which processes are there, and are they gone? Read from /proc; pids are the ones seen from outside a host."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import PATIENCE_SECONDS


@dataclass(frozen=True)
class Process:
    """One process of a host."""

    pid: int  # as seen from here: may be signalled
    inner_pid: int  # as the host itself sees it
    parent: int
    session: int
    name: str  # the kernel's name, 15 characters
    command: str


def all_processes() -> Iterator[Process]:
    """Every process but zombies."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (process := _read(int(entry.name))):
            yield process


def in_pid_namespace(init: int) -> list[Process]:
    """The processes of the pid namespace whose first process is `init`; none when it is gone."""
    try:
        namespace = os.readlink(f"/proc/{init}/ns/pid")
    except OSError:
        return []
    return [process for process in all_processes() if _namespace(process.pid) == namespace]


def environment(pid: int) -> dict[str, str]:
    """What the process was started with; empty when it may not be read."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def end(pids: Iterable[int], sign: int = signal.SIGKILL, seconds: float = PATIENCE_SECONDS) -> None:
    """Signal each and wait until all are gone. Gone already: nothing."""
    handles = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            handles.append((pid, os.pidfd_open(pid)))
            signal.pidfd_send_signal(handles[-1][1], sign)
    try:
        for pid, handle in handles:
            if not select.select([handle], [], [], seconds)[0]:
                raise TimeoutError(f"process {pid} still runs {seconds:g} s after signal {sign}")
    finally:
        for _, handle in handles:
            os.close(handle)


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _read(pid: int) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        status = Path(f"/proc/{pid}/status").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    name, fields = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
    if fields[0] in "ZX":
        return None
    inner = next((line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:")), str(pid))
    words = command.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return Process(pid, int(inner), int(fields[1]), int(fields[3]), name, words.strip())
