"""Python that has HyperQueue, in the user's cache: made the first time. As a program it prints where that is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

VERSION = "0.27.0"


def python_with_hyperqueue() -> Path:
    """Raises CalledProcessError where no package registry has it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    venv = cache / "jobyard/benchmarks" / f"hyperqueue-{VERSION}"
    if not (venv / "ready").exists():
        print(f"Installing hyperqueue {VERSION} into {venv}.", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "-q", f"hyperqueue=={VERSION}"], check=True)
        (venv / "ready").touch()
    return venv / "bin/python"


if __name__ == "__main__":
    print(python_with_hyperqueue())
