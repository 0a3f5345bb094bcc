"""Standard input: what does a task read? Nothing, or the bytes that came with its job."""

from __future__ import annotations

import base64
import tempfile
from typing import IO, Any, Dict, Optional


class StandardInput:
    """Of one lane's tasks, one after another. The file has no name, so it goes with the lane, however that ends."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self._encoded: Optional[str] = None
        self._file: Optional[IO[bytes]] = None

    def enter_job(self, message: Dict[str, Any]) -> None:
        self._encoded = message.get("stdin")
        if self._file is not None:
            self._file.close()
            self._file = None

    def path(self) -> str:
        """What a task opens, and so reads from its beginning. Raises OSError on a full disk."""
        if self._encoded is None:
            return "/dev/null"
        if self._file is None:
            self._file = self._written(base64.b64decode(self._encoded))
        return "/proc/self/fd/%d" % self._file.fileno()

    def _written(self, content: bytes) -> IO[bytes]:
        file = tempfile.TemporaryFile(dir=self._state_dir)  # noqa: SIM115 - it stays open for the tasks to come
        try:
            file.write(content)
            file.flush()
        except OSError:
            file.close()
            raise
        return file
