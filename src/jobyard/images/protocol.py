"""Builder protocol: what does every builder promise?"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from jobyard.images.names import ImageName
from jobyard.model.source import GitState

Say = Callable[[str], None]


@dataclass(frozen=True)
class BuildPlan:
    context: Path  # absolute
    dockerfile: Path  # absolute
    push: ImageName  # as the builder reaches the registry
    pull: ImageName  # as who runs the image reaches it
    git: GitState
    target: str = ""
    build_args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def dockerfile_in_context(self) -> str:
        """Seen from the context; `../Dockerfile` where it stands outside."""
        return os.path.relpath(self.dockerfile, self.context)


@dataclass(frozen=True)
class Built:
    name: str  # as who runs it pulls it, without a tag: podman takes no name with both
    digest: str  # sha256:...
    tag: str = ""
    is_reused: bool = False

    @property
    def pinned(self) -> str:
        return f"{self.name}@{self.digest}"


class Builder(Protocol):
    """Independent of any yard, and stateless. A remote builder sees the commit, and no file of this machine."""

    is_remote: bool

    def check(self) -> None:
        """Raises UserError in one sentence where it cannot build at all. Before anything else is done."""
        ...

    def default_dockerfile(self, context: Path) -> Path | None:
        """The one it would take in this directory, or None."""
        ...

    def build(self, plan: BuildPlan, say: Say) -> Built:
        """Builds and pushes; each line of the log is said as it comes. Raises BuildFailed, or UserError."""
        ...
