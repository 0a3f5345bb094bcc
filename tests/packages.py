"""Debian packages: which do tests need? A `packages.txt` names them, each with a command that it brings."""

from __future__ import annotations

import subprocess
from collections.abc import Collection
from pathlib import Path

from tests.yards import ROOT


def why_lacking(directory: str, only: Collection[str] = ()) -> str:
    """Empty when those of `tests/DIRECTORY/packages.txt` are here, or could be installed; otherwise one sentence."""
    listed = Path(__file__).parent / directory / "packages.txt"  # the Makefile reads it too
    for line in listed.read_text().splitlines():
        package, command = line.split()
        if only and package not in only:
            continue
        done = subprocess.run([ROOT / "tools/need", package, command], capture_output=True, text=True)
        if done.returncode != 0:
            return done.stderr.strip().splitlines()[-1]
    return ""
