"""Whose process is at the other end of a connection within this machine?"""

from __future__ import annotations

import socket
import struct
from typing import Optional, Tuple

# The last one again: a table that changes while it is read may lack a row.
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6", "/proc/net/tcp")
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9  # columns


def uid_of(stream: socket.socket) -> Optional[int]:
    """Of the process that holds the other end of an IPv4 connection; None: it is gone, or nobody knows."""
    try:
        theirs, ours = stream.getpeername(), stream.getsockname()
    except OSError:
        return None
    for table in _TABLES:
        # A client that speaks IPv6 may reach an IPv4 address all the same, by a longer name for it.
        prefix = b"0000000000000000FFFF0000" if table.endswith("6") else b""
        found = _uid_in(table, prefix + _address(theirs), prefix + _address(ours))
        if found is not None:
            return found
    return None


def _address(address: Tuple[str, int]) -> bytes:
    host, port = address
    return b"%08X:%04X" % (struct.unpack("=I", socket.inet_aton(host))[0], port)


def _uid_in(table: str, local: bytes, remote: bytes) -> Optional[int]:
    try:
        with open(table, "rb") as file:
            content = file.read()
    except OSError:
        return None
    row = content.find(b" %s %s " % (local, remote))
    if row < 0:
        return None
    columns = content[content.rfind(b"\n", 0, row) + 1 :].split(b"\n", 1)[0].split()
    # Once its process has closed it a connection is nobody's, and said to be root's.
    return int(columns[_UID]) if columns[_INODE] != b"0" else None
