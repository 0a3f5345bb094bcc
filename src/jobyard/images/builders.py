"""Builder registry: which builders are there? Name -> module and class, loaded on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from jobyard.errors import UserError

KNOWN = {
    "docker": "jobyard.images.docker:DockerBuilder",
    "podman": "jobyard.images.podman:PodmanBuilder",
    "kaniko": "jobyard.images.kaniko:KanikoBuilder",
}
DEFAULT = "docker"


def builder_class(name: str) -> Any:
    if name not in KNOWN:
        raise UserError(f"no builder {name!r}; known: {', '.join(sorted(KNOWN))}")
    module, _, attribute = KNOWN[name].partition(":")
    return getattr(import_module(module), attribute)
