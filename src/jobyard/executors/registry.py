"""Which executors are there? Name -> module and class, loaded on first use."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from jobyard.errors import UserError
from jobyard.executors.protocol import SubmittedJob

KNOWN = {
    "fake": "jobyard.executors.fake:FakeExecutor",
    "local": "jobyard.executors.machines:MachineExecutor",
    "ssh": "jobyard.executors.machines:MachineExecutor",
}

# Executors that can show what they would send, and cannot send it yet.
PREVIEWS = {"kubernetes": "jobyard.executors.kubernetes.text:render"}


def executor_class(name: str) -> Any:
    if name not in KNOWN:
        raise UserError(f"no executor {name!r}; known: {', '.join(sorted(KNOWN))}")
    return _loaded(KNOWN[name])


def preview_by(name: str) -> Callable[[SubmittedJob], str]:
    """What the executor would send for the first attempt of a job."""
    preview: Callable[[SubmittedJob], str] = _loaded(PREVIEWS[name])
    return preview


def _loaded(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)
