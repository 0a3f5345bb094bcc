"""Lock of a directory that everybody may lock: how long is it waited for, and who keeps it?"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import Iterator, Optional

from jobyard.agent.sharing.published import user_name
from jobyard.agent.system import processes

_LOCK_SECONDS = 2.0
_HURRY_SECONDS = 60.0  # for so long, after it was waited for in vain, nobody waits for it again


class DirectoryLock:
    """Whoever opens the directory can keep the lock for ever, so nothing may depend on it: without it work goes on.

    `problem` says who keeps it, or why there is none; empty: it could be had the last time.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._hurries_until = 0.0
        self.problem = ""

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Whether it is ours; False: it is done without. Makes the directory where there is none."""
        descriptor = self._open()
        if descriptor is None:
            yield False
            return
        try:
            yield self._lock(descriptor)
        finally:
            os.close(descriptor)  # and the lock with it

    def _open(self) -> Optional[int]:
        try:
            try:
                os.mkdir(self._directory, 0o1777)
                os.chmod(self._directory, 0o1777)  # the umask took something away
            except FileExistsError:
                pass
            return os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            self.problem = "%s cannot be used%s: %s" % (self._directory, owner_of(self._directory), error.strerror)
            return None

    def _lock(self, descriptor: int) -> bool:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._hurries_until, self.problem = 0.0, ""
                return True
            except OSError:
                now = time.monotonic()
                if now > deadline or now < self._hurries_until:
                    break
                time.sleep(0.01)
        if now > deadline:
            self._hurries_until = now + _HURRY_SECONDS
        self.problem = "the lock on %s is kept by %s; done without it" % (self._directory, _keeper(descriptor))
        return False


def owner_of(path: str) -> str:
    """For a sentence: whose it is, where it is another user's."""
    try:
        uid = os.lstat(path).st_uid
    except OSError:
        return ""
    return "" if uid == os.getuid() else ", which belongs to %s" % user_name(uid)


def _keeper(descriptor: int) -> str:
    """Who has the lock: the kernel's own list has the process and the file's number."""
    inode = ":%d" % os.fstat(descriptor).st_ino
    try:
        with open("/proc/locks") as file:
            rows = [line.split() for line in file]
    except OSError:
        return "somebody"
    for row in rows:
        if len(row) > 5 and row[1] == "FLOCK" and row[5].endswith(inode) and row[4].isdigit():
            pid = int(row[4])
            process = processes.inspect(pid)
            if process is not None:
                return "%s of %s (process %d)" % (process.name, user_name(os.stat("/proc/%d" % pid).st_uid), pid)
            return "process %d, which is gone or hidden" % pid
    return "somebody"
