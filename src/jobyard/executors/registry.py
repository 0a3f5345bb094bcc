"""Registry of executors: which are there? Name -> module and class, loaded on first use."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from jobyard.errors import UserError
from jobyard.executors.protocol import SubmittedJob

KNOWN = {
    "fake": "jobyard.executors.fake:FakeExecutor",
    "kubernetes": "jobyard.executors.kubernetes.executor:KubernetesExecutor",
    "local": "jobyard.executors.machines:MachineExecutor",
    "ssh": "jobyard.executors.machines:MachineExecutor",
}

# Executors that can render a job without a connection.
PREVIEWS = {"kubernetes": "jobyard.executors.kubernetes.text:render"}


def executor_class(name: str) -> Any:
    if name not in KNOWN:
        raise UserError(f"no executor {name!r}; known: {', '.join(sorted(KNOWN))}")
    try:
        return _loaded(KNOWN[name])
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("jobyard"):  # not a library that is missing, but a part of us
            raise
        title = name.capitalize()
        raise UserError(f"the {title} executor needs its extra; run: pip install 'jobyard[{name}]'") from error


def preview_by(name: str) -> Callable[[SubmittedJob], str]:
    """What the executor would send for the first attempt of a job."""
    preview: Callable[[SubmittedJob], str] = _loaded(PREVIEWS[name])
    return preview


def _loaded(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)
