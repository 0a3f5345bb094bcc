"""Shell of a reader: one command after the other, in the directory and with the variables that those before it left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE_SECONDS
from tests.yards import TemporaryYard, Terminal

BESIDE = Path(__file__).parent / "beside"
# Variables are exported, so that the next command has them.
SCRIPT = """\
. "$SHELL_STATE"
set -a
eval "$1"
code=$?
{ export -p; printf 'cd %q\\n' "$PWD"; } >"$SHELL_STATE"
exit $code
"""
YARD = """\
#!/bin/sh
exec {python} -P -m jobyard.cli.main "$@"
"""


class Shell:
    """`yard` is the tree's, beside the stand-ins of programs that guides use."""

    def __init__(self, yard: TemporaryYard) -> None:
        self.yard = yard
        programs = yard.root / "bin"
        programs.mkdir()
        for program in (BESIDE / "bin").iterdir():
            (programs / program.name).symlink_to(program)
        (programs / "python").symlink_to(sys.executable)
        (programs / "yard").write_text(YARD.format(python=sys.executable))
        (programs / "yard").chmod(0o755)
        state = yard.root / "shell"
        state.touch()
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.env = {**yard.env, "SHELL_STATE": str(state), "PATH": path, "PYTHONUNBUFFERED": "1"}

    def run(self, command: str) -> tuple[int, str]:
        """The exit code, and what was written to stdout and stderr."""
        done = subprocess.run(
            ["bash", "-c", SCRIPT, "bash", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.yard.work,
            env=self.env,
            timeout=PATIENCE_SECONDS,
        )
        return done.returncode, done.stdout

    def type(self, command: str, seen: str, keys: bytes) -> tuple[int, str]:
        """The same on a terminal, where these keys are typed once something is seen."""
        words = ["bash", "-c", SCRIPT, "bash", command]
        with Terminal(words, self.env, self.yard.work, columns=120) as screen:
            screen.until(seen)
            screen.press(keys)
            return screen.ended(), screen.plain
