"""Local connections: which user's process is at the other end, by the kernel's tables?"""

from __future__ import annotations

import socket
import struct
from typing import List, Optional, Tuple

# The last one again: a table that changes while it is read may lack a row.
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6", "/proc/net/tcp")
_UID, _INODE = 7, 9  # columns


def uid_of(stream: socket.socket) -> Optional[int]:
    """Of the process that holds the other end of a connection; None: it is gone, or nobody knows."""
    row = _row_of(stream)
    return int(row[_UID]) if row else None


def uid_between(theirs: Tuple[str, int], ours: Tuple[str, int]) -> Optional[int]:
    """The same, of a connection that somebody else holds."""
    row = _row_between(theirs, ours)
    return int(row[_UID]) if row else None


def inode_of(stream: socket.socket) -> str:
    """Of the other end, by which the process that holds it is found; empty: it is gone, or nobody knows."""
    row = _row_of(stream)
    return row[_INODE].decode() if row else ""


def _row_of(stream: socket.socket) -> List[bytes]:
    """What the kernel's tables say of the other end; empty: it is gone, or nobody knows."""
    try:
        return _row_between(stream.getpeername()[:2], stream.getsockname()[:2])
    except OSError:
        return []


def _row_between(theirs: Tuple[str, int], ours: Tuple[str, int]) -> List[bytes]:
    for table in _TABLES:
        try:
            found = _row_in(table, _address(theirs, table), _address(ours, table))
        except OSError:  # an IPv6 address in the other table
            continue
        if found:
            return found
    return []


def _address(address: Tuple[str, int], table: str) -> bytes:
    """As the table has it. Raises OSError for an address that it cannot have."""
    host, port = address
    if not table.endswith("6"):
        return b"%08X:%04X" % (struct.unpack("=I", socket.inet_pton(socket.AF_INET, host))[0], port)
    # A client that speaks IPv6 may reach an IPv4 address all the same, by a longer name for it.
    packed = socket.inet_pton(socket.AF_INET6, host if ":" in host else "::ffff:" + host)
    return b"%08X%08X%08X%08X:%04X" % (*struct.unpack("=4I", packed), port)


def _row_in(table: str, local: bytes, remote: bytes) -> List[bytes]:
    try:
        with open(table, "rb") as file:
            content = file.read()
    except OSError:
        return []
    row = content.find(b" %s %s " % (local, remote))
    if row < 0:
        return []
    columns = content[content.rfind(b"\n", 0, row) + 1 :].split(b"\n", 1)[0].split()
    # Once its process has closed it a connection is nobody's, and said to be root's.
    return columns if columns[_INODE] != b"0" else []
