"""Stop signal: was this job asked to stop at its next checkpoint? By a file beside the spool, or by SIGTERM."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

LOOK_SECONDS = 1.0

_listener = 0  # the process that listens
_is_terminated = False
_before: Any = None
_path = ""


class StopListener:
    """The stop file of one attempt, and the signal."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_there = False
        self._looked_at = float("-inf")

    @property
    def is_made(self) -> bool:
        """As far as is known: reads no file."""
        return self._is_there or (_is_terminated and _listener == os.getpid())

    def look(self, now: float, *, at_once: bool = False) -> bool:
        """Look for the file, at most once a second unless `at_once`. A request is not taken back."""
        if self._path and not self._is_there and (at_once or now - self._looked_at >= LOOK_SECONDS):
            self._looked_at = now
            self._is_there = os.path.exists(self._path)
        return self.is_made


def listen(path: str = "") -> None:
    """From now on SIGTERM asks to stop instead of killing; a handler that was there before is still called.

    Unless the stop file at `path` says that the job is cancelled: then it kills. Repeatable. Outside the main thread,
    where Python allows no handlers, nothing happens.
    """
    global _listener, _before, _path
    _path = path
    import signal  # its enums take longer than the rest of the SDK

    before = signal.getsignal(signal.SIGTERM)
    if before is _on_sigterm and _listener == os.getpid():
        return
    try:
        signal.signal(signal.SIGTERM, _on_sigterm)
    except ValueError:
        return
    _before = _before if before is _on_sigterm else before
    _listener = os.getpid()


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    global _is_terminated
    if os.getpid() != _listener or _is_cancelled():
        import signal

        # A forked process, such as a data loader's worker, has inherited this handler: SIGTERM must still end it.
        signal.signal(signal.SIGTERM, _before if _before is not None else signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        return
    is_first, _is_terminated = not _is_terminated, True
    # Only the first time: a handler that was set between two of ours calls this one again, and so on without end.
    # Never Lightning's: it leaves the epoch with exit code 0, without a checkpoint, as if all were done.
    if is_first and callable(_before) and not type(_before).__module__.startswith(("lightning.", "pytorch_lightning.")):
        _before(number, frame)


def _is_cancelled() -> bool:
    """Has the agent written that the job is cancelled, so that no checkpoint is needed?"""
    try:
        with open(_path) as file:
            return '"is_overridden": true' in file.read(4096)
    except (OSError, ValueError):
        return False
