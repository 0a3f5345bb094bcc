"""Users of the operating system besides root: how does a test run a command, or a whole yard, as one of them?"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.yards import ROOT, TemporaryYard

NAMES = ("daemon", "games", "nobody")  # every Debian and most other systems have them
# The Python of these tests may stand below a home that only root can enter. In a mount namespace of its own the first
# closed directory above it is empty, but for what the tests need ("$1", under the same path).
SHOW = """\
set -e
aside=$(mktemp -d)
mount --bind "$1" "$aside"
mount -t tmpfs -o mode=755 tmpfs "$2"
mkdir -p "$1"
mount --move "$aside" "$1"
rmdir "$aside"
shift 2
exec "$@"
"""


@dataclass(frozen=True)
class OsUser:
    name: str

    @property
    def uid(self) -> int:
        return pwd.getpwnam(self.name).pw_uid

    @property
    def prefix(self) -> list[str]:
        """What a command begins with that this user is to run; it keeps the pid."""
        words: list[str] = []
        for path in (Path(sys.base_prefix), ROOT):
            if closed := _closed_above(path):
                words += ["unshare", "--mount", "sh", "-c", SHOW, "sh", str(path), str(closed)]
        group = pwd.getpwnam(self.name).pw_gid
        return [*words, "setpriv", f"--reuid={self.uid}", f"--regid={group}", "--clear-groups", "--"]

    def run(self, *words: str, cwd: Path = Path("/"), seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """A command to its end, with an almost empty environment."""
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/", "LC_ALL": "C.UTF-8"}
        command = [*self.prefix, *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=seconds)

    def own(self, directory: Path) -> None:
        """Everything below belongs to this user from now on."""
        for place, directories, files in os.walk(directory):
            for name in (".", *directories, *files):
                os.chown(Path(place, name), self.uid, pwd.getpwnam(self.name).pw_gid, follow_symlinks=False)

    def take(self, yard: TemporaryYard) -> TemporaryYard:
        """The yard is this user's: its directories are, and each call of `yard` is made by this user."""
        cache = yard.root / "cache"  # the agent is built there
        cache.mkdir(mode=0o700, exist_ok=True)
        yard.env["XDG_CACHE_HOME"] = str(cache)
        yard.env["USER"] = yard.env["LOGNAME"] = self.name
        yard.prefix = self.prefix
        self.own(yard.root)
        return yard


def why_not() -> str:
    """Why no command can be run as another user here; empty: it can."""
    if os.getuid() != 0:
        return "only root can become another user"
    for program in ("setpriv", "unshare", "mount"):
        if not shutil.which(program):
            return f"this needs the program {program} (the package util-linux)"
    missing = [name for name in NAMES if not _is_known(name)]
    if missing:
        return f"this system has no user {missing[0]}"
    tried = OsUser(NAMES[0]).run(sys.executable, "-c", "import jobyard")
    return (
        "" if tried.returncode == 0 else f"others than root cannot run the Python of these tests: {tried.stderr[-200:]}"
    )


def _is_known(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _closed_above(path: Path) -> Path | None:
    """The uppermost directory on the way to `path` that others cannot enter."""
    for directory in reversed([path, *path.parents]):
        if not directory.stat().st_mode & 0o001:
            return directory
    return None
