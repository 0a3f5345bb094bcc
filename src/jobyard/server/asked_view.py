"""Asked fields: what did a submitter set, other than the defaults? For a job's view."""

from __future__ import annotations

from typing import Any

from jobyard.model import codec
from jobyard.model.job import JobSpec

# By part of a spec, of which views show these; None: every field. What is left out has a place of its own in a view.
_SHOWN: dict[str, tuple[str, ...] | None] = {
    "policy": None,
    "training": None,
    "staging": ("copy_forward", "copy_back", "no_copy", "output", "error"),
    "kubernetes": ("kind", "volumes"),
    "container": ("image", "on_machines"),
}


def asked_view(spec: JobSpec) -> dict[str, Any]:
    """By place in the spec, as JSON has it: `policy.grace_seconds`, `on`."""
    found: dict[str, Any] = {"on": spec.on} if spec.on else {}
    if spec.gang:
        found["gang"] = True
    for part, names in _SHOWN.items():
        values = codec.encode(getattr(spec, part)) or {}  # without what is as its default
        found |= {f"{part}.{name}": value for name, value in values.items() if names is None or name in names}
    if (stdin := spec.staging.stdin) is not None:
        found["staging.stdin"] = len(stdin) // 4 * 3 - stdin.count("=")  # how many bytes base64 stands for
    (array, *_) = (group.array for group in spec.groups)
    if array is not None:
        found["array"] = codec.encode(array)
    return found
