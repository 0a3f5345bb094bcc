"""Git trees to build from: a repository with a bare one that it is pushed to."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

DOCKERFILE = """\
FROM scratch AS base
COPY busybox /bin/busybox
FROM base AS main
ARG COMMIT_HASH
ARG GREETING=hello
COPY greeting.txt /greeting.txt
RUN ["/bin/busybox", "sh", "-c", "echo $GREETING from $COMMIT_HASH > /built.txt; /bin/busybox cat /built.txt"]
CMD ["/bin/busybox", "cat", "/built.txt"]
"""


class Tree:
    """A repository with one commit, pushed."""

    def __init__(self, directory: Path, *, is_pushed: bool = True) -> None:
        self.path = directory / "My_App"
        self.bare = directory / "remote.git"
        self.path.mkdir(parents=True)
        subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", self.bare], check=True)
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("remote", "add", "origin", str(self.bare))
        self.write("greeting.txt", "one\n")
        self.commit("first")
        if is_pushed:
            self.push()

    def git(self, *words: str) -> str:
        who = {f"GIT_{role}_{what}": f"test{at}" for role in ("AUTHOR", "COMMITTER") for what, at in _WHO}
        done = subprocess.run(
            ["git", *words], cwd=self.path, check=True, capture_output=True, text=True, env={**os.environ, **who}
        )
        return done.stdout.rstrip("\n")

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def commit(self, message: str = "more") -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.head

    def push(self) -> None:
        self.git("push", "--quiet", "--set-upstream", "origin", "main")

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    def add_dockerfile(self, text: str = DOCKERFILE) -> None:
        """With the one program that its image needs."""
        self.write("Dockerfile", text)
        busybox = shutil.which("busybox")
        assert busybox is not None
        shutil.copy(busybox, self.path / "busybox")


_WHO = (("NAME", ""), ("EMAIL", "@example.org"))
