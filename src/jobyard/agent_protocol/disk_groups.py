"""Disk groups: where do the files of a job lie, so that files deleted a moment ago do not slow down new ones?

ext4 makes a file in the block group of its directory. Without a journal it does not use an inode again for a minute or
more: each new file looks at every inode of the group that was freed since then. A packer frees thousands at once, and
then a new file cost 500 us here instead of 17.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress

_GET_FLAGS, _SET_FLAGS = (0x80086601, 0x40086602) if struct.calcsize("l") == 8 else (0x80046601, 0x40046602)
_TOP_OF_HIERARCHY = 0x00020000  # EXT4_TOPDIR_FL, the T of chattr: what is made in it is not related


def spread(directory: str) -> None:
    """From now on directories made in this one get groups of their own. It is made if it is not there.

    A hint: where the file system knows no such thing, or the disk is full, nothing happens.
    """
    with suppress(OSError):
        os.makedirs(directory, mode=0o700, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = _flags(descriptor)
            if not flags & _TOP_OF_HIERARCHY:
                fcntl.ioctl(descriptor, _SET_FLAGS, _words(flags | _TOP_OF_HIERARCHY))
        finally:
            os.close(descriptor)


def _flags(descriptor: int) -> int:
    return int(struct.unpack_from("@i", fcntl.ioctl(descriptor, _GET_FLAGS, _words(0)))[0])


def _words(flags: int) -> bytes:
    """The kernel reads and writes an int, though the number of the call speaks of a long."""
    return struct.pack("@i", flags).ljust(struct.calcsize("l"), b"\0")
