"""Use lock: which commands use machines of the yard now? A shared file lock; the system frees it when one dies."""

from __future__ import annotations

import fcntl
import os

from jobyard import settings


class Use:
    """Held from before a machine is added until after the last command has taken the machines away."""

    def __enter__(self) -> Use:
        path = settings.runtime_dir() / f"{settings.yard_key(settings.yard_dir())}.machines"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)  # waits while the last command takes machines away
        return self

    def is_last(self) -> bool:
        """Whether this is the only use. If so, a command that starts now waits until this use ends."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
