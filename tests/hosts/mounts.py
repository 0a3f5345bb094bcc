"""Mounts: which are below a directory? They go before the directory can."""

from __future__ import annotations

import subprocess
from pathlib import Path


def mounts_below(path: Path) -> list[Path]:
    points = (Path(line.split()[1]) for line in Path("/proc/self/mounts").read_text().splitlines())
    return [point for point in points if point.is_relative_to(path)]


def unmount_below(path: Path) -> None:
    for mount in reversed(mounts_below(path)):
        subprocess.run(["umount", "--lazy", mount], capture_output=True)
