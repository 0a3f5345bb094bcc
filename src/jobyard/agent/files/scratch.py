"""Scratch directories: which does an attempt get, and how can thousands a second have them?"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from typing import Dict

from jobyard.agent_protocol.records import Paths

_FRESH = stat.S_IFDIR | 0o700


class Scratch:
    """Makes TMPDIR, the output and the checkpoint directory of one attempt after another.

    What an attempt left untouched is renamed for the next one. On ext4 a rename costs 7 microseconds, making and
    removing a directory 40 to 400, and inodes that were freed in the last seconds slow down every file made after them.
    """

    def __init__(self) -> None:
        self._spare: Dict[str, str] = {}

    def prepare(self, files: Paths, shares_checkpoint: bool = False) -> None:
        """Afterwards all three exist. Raises OSError if one cannot be made."""
        self._make("tmp", files.tmp)
        self._make("output", files.output)
        if shares_checkpoint:
            os.makedirs(files.checkpoint, mode=0o700, exist_ok=True)
        else:
            self._make("checkpoint", files.checkpoint)

    def clear(self, files: Paths, keep_for_next: bool, shares_checkpoint: bool = False) -> None:
        """TMPDIR goes, the others go if they are empty; what is fit for another attempt may stay until that begins.

        A checkpoint directory that others share stays: one of them may be about to write to it.
        """
        places = [("tmp", files.tmp), ("output", files.output), ("checkpoint", files.checkpoint)]
        for kind, path in places[:2] if shares_checkpoint else places:
            if keep_for_next and kind not in self._spare and _is_untouched(path):
                self._spare[kind] = path
                continue
            try:
                os.rmdir(path)
            except OSError:
                if kind == "tmp":
                    shutil.rmtree(path, ignore_errors=True)

    def drop_spare(self) -> None:
        """No attempt follows: remove empty directories."""
        while self._spare:
            with suppress(OSError):
                os.rmdir(self._spare.popitem()[1])

    def _make(self, kind: str, path: str) -> None:
        spare = self._spare.pop(kind, None)
        if spare is not None:
            try:
                os.rename(spare, path)
                return
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # the checkpoint of an earlier attempt
                    self._spare[kind] = spare
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        except FileNotFoundError:
            os.makedirs(path, mode=0o700, exist_ok=True)


def _is_untouched(path: str) -> bool:
    try:
        return os.lstat(path).st_mode == _FRESH and not os.listdir(path)
    except OSError:
        return False


def trouble_with(directory: str) -> str:
    """Why nothing can be written there, in a sentence; empty when it can."""
    path = "%s/.room-%d" % (directory, os.getpid())
    try:
        with open(path, "wb") as file:
            file.write(bytes(4096))
        return ""
    except OSError as error:
        return "nothing can be written to %s: %s; make room there" % (directory, error.strerror)
    finally:
        with suppress(OSError):
            os.unlink(path)
