"""Disk: is there little room left where the yard is? One sentence with the way out, and on a terminal once a day."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

from jobyard import settings
from jobyard.cli.output.text import warn
from jobyard.cli.session import Session
from jobyard.model.units import show_mib

LEAST_MIB = 1024  # on a small disk; on others a tenth, but no more than so much:
EARLY_MIB = 10 * 1024
TOLD_SECONDS = 86400.0


def free_mib(yard: Path) -> tuple[int, bool]:
    """What is free on the disk of a yard, which may not exist yet, and whether that is little."""
    existing = next(path for path in (yard, *yard.parents) if path.exists())
    total, _, free = shutil.disk_usage(existing)
    return free >> 20, free >> 20 < max(LEAST_MIB, min(EARLY_MIB, total // 10 >> 20))


def tell_if_filling(session: Session) -> None:
    """Best effort: only to somebody who looks, and who was not told today."""
    if session.is_remote or not sys.stderr.isatty():
        return
    with suppress(OSError):
        yard, told = settings.yard_dir(session.yard), settings.state_dir() / "told-of-disk"
        free, is_little = free_mib(yard)
        if not is_little or (told.exists() and time.time() - told.stat().st_mtime < TOLD_SECONDS):
            return
        warn(f"only {show_mib(free)} are free where the yard {yard} is; `yard gc` and `yard rm JOB` make room")
        told.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        told.touch()
