"""Which Debian packages does a cluster need? `packages.txt` names them, each with a command that it brings."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.yards import ROOT

LIST = Path(__file__).with_name("packages.txt")
ALWAYS = ("openssl", "util-linux")
"""Without these there is no control plane either; the others are a real node's."""


def why_lacking(only: tuple[str, ...] = ()) -> str:
    """Empty when they are here, or could be installed; otherwise one sentence."""
    for line in LIST.read_text().splitlines():
        package, command = line.split()
        if only and package not in only:
            continue
        done = subprocess.run([ROOT / "tools/need", package, command], capture_output=True, text=True)
        if done.returncode != 0:
            return done.stderr.strip().splitlines()[-1]
    return ""
