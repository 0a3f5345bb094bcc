"""A yard for the length of a measurement, and the `yard` command to use it with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from record import REPOSITORY


def find_yard() -> str:
    """The `yard` beside this Python, of the clone's own .venv, or of the PATH, in this order."""
    beside = [Path(sys.executable).parent / "yard", REPOSITORY / ".venv/bin/yard"]
    found = next((str(path) for path in beside if path.exists()), shutil.which("yard"))
    if found is None:
        sys.exit("There is no `yard` command to measure; run `make setup` first.")
    return found


class Yard:
    """The `yard` command, bound to one yard."""

    def __init__(self, directory: Path) -> None:
        self.command = find_yard()
        self.directory = directory
        not_ours = ("YARD_URL", "YARD_TOKEN")
        self.env = {name: value for name, value in os.environ.items() if name not in not_ours}
        (directory / "yard").mkdir(mode=0o700, exist_ok=True)  # a verb that only looks makes none
        self.env["YARD_DIR"] = str(directory / "yard")

    def run(self, *arguments: str) -> None:
        """Run one command to its end; one that fails ends the benchmark with what it said."""
        check([self.command, *arguments], env=self.env, cwd=self.directory)


@contextmanager
def temporary_yard() -> Iterator[Yard]:
    """A yard that nobody has used, stopped and removed at the end. It stands in the user's home, as yards do.

    Not in /tmp, where GNU parallel deletes a file per task: for some seconds ext4 makes new files next to deleted ones
    ten times as slowly, and whoever comes after parallel would pay for it.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jobyard/benchmarks"
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="yard.", dir=home, ignore_cleanup_errors=True) as directory:
        yard = Yard(Path(directory))
        try:
            yield yard
        finally:
            for arguments in (["cancel", "--all", "--force"], ["server", "stop", "--force"]):
                subprocess.run([yard.command, *arguments], env=yard.env, capture_output=True)


def check(
    command: Sequence[str],
    *,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    stdin: Path = Path(os.devnull),
    stdout: Path = Path(os.devnull),
) -> None:
    """Run a command between two files; its standard error is shown only if it fails."""
    with open(stdin, "rb") as source, open(stdout, "wb") as target:
        done = subprocess.run(command, env=env, cwd=cwd, stdin=source, stdout=target, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
