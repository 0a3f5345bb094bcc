"""Which Debian packages do builds need? `packages.txt` names them, each with a command that it brings."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.yards import ROOT

LIST = Path(__file__).with_name("packages.txt")  # also read by the Makefile


def why_lacking(*packages: str) -> str:
    """Empty when these are here, or could be installed; otherwise one sentence."""
    for line in LIST.read_text().splitlines():
        package, command = line.split()
        if package not in packages:
            continue
        done = subprocess.run([ROOT / "tools/need", package, command], capture_output=True, text=True)
        if done.returncode != 0:
            return done.stderr.strip().splitlines()[-1]
    return ""
