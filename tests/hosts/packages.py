"""Which Debian packages do the hosts need, and are they here?"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

LIST = Path(__file__).with_name("packages.txt")  # also read by the Makefile: package, command
NEED = Path(__file__).resolve().parents[2] / "tools" / "need"
SEARCH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])  # sshd and tc live in sbin


def missing() -> str | None:
    """A sentence naming a package that is not here and could not be installed; None when all are here."""
    for package, command in (line.split() for line in LIST.read_text().splitlines()):
        if shutil.which(command, path=SEARCH):
            continue
        if not NEED.exists():
            return f"This needs the Debian package {package}."
        done = subprocess.run([NEED, package, command], capture_output=True, text=True)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
    return None
