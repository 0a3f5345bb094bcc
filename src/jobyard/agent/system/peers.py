"""Peers: which process is at the other end of a connection within this machine?"""

from __future__ import annotations

import os
import socket
from typing import Iterable, Iterator, Optional

from jobyard.agent.system import processes
from jobyard.agent.system.processes import Process
from jobyard.agent_protocol.local_connections import inode_of


def process_of(stream: socket.socket, likely: Iterable[int], sessions: Iterable[int]) -> Optional[Process]:
    """The process that holds the other end; None: nobody may know. It is looked for first among the `likely` processes,
    then in these sessions, then everywhere.

    A child that was forked meanwhile holds it too: meant is the oldest.
    """
    inode = inode_of(stream)
    if not inode:
        return None
    link = "socket:[%s]" % inode
    for place in _places(likely, sessions):
        holders = [process for process in place if _holds(process.pid, link)]
        if holders:
            return min(holders, key=lambda process: process.start_time)
    return None


def _places(likely: Iterable[int], sessions: Iterable[int]) -> Iterator[Iterable[Process]]:
    yield [process for process in map(processes.inspect, likely) if process is not None]
    yield [process for members in processes.by_session(sessions).values() for process in members]
    yield processes.scan()


def _holds(pid: int, link: str) -> bool:
    directory = "/proc/%d/fd" % pid
    try:
        return any(_link(directory + "/" + name) == link for name in os.listdir(directory))
    except OSError:  # somebody else's, or gone
        return False


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
