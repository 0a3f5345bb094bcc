"""Which executors are there? Name -> module and class, loaded on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from jobyard.errors import UserError

KNOWN = {
    "fake": "jobyard.executors.fake:FakeExecutor",
    "local": "jobyard.executors.machines:MachineExecutor",
    "ssh": "jobyard.executors.machines:MachineExecutor",
}


def executor_class(name: str) -> Any:
    if name not in KNOWN:
        raise UserError(f"no executor {name!r}; known: {', '.join(sorted(KNOWN))}")
    module, _, attribute = KNOWN[name].partition(":")
    return getattr(import_module(module), attribute)
