"""Asked fields: what did a submitter set, other than the defaults? As `--dry-run` and `yard show` print it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jobyard.cli.output.text import shortened
from jobyard.manifests.declarations import JobField
from jobyard.manifests.fields import Choice
from jobyard.manifests.job_fields import TOP_LEVEL, TRAINING
from jobyard.model.codec import decode
from jobyard.model.job import ArrayRange
from jobyard.model.kubernetes import Volume
from jobyard.model.units import show_seconds
from jobyard.wire.views import JobView

Rows = list[tuple[str, str]]
COLUMNS_MOST = 200  # of a list of ids or paths
_PLACES = {
    "array": "array",
    "copy_forward": "staging.copy_forward",
    "copy_backwards": "staging.copy_back",
    "stdin": "staging.stdin",
    "output": "staging.output",
    "error": "staging.error",
}


def asked_rows(job: JobView, besides: Iterable[str] = ()) -> Rows:
    """A row for each field of a job that was set, by its key; not for those that other rows tell already."""
    rows = [
        (key.replace("_", " "), _shown(key, field, job.asked[place]))
        for table in (*TOP_LEVEL, TRAINING)
        for key, field in table.items()
        if (place := field.at or _PLACES.get(key, "")) in job.asked
    ]
    if job.asked.get("staging.no_copy"):
        rows.append(("no copy", "yes"))
    if any(group.resources.memory_limit is False and group.resources.memory_mib for group in job.groups):
        rows.append(("memory limit", "no"))
    told = set(besides)
    return [(name, value) for name, value in rows if name not in told]


def _shown(key: str, field: JobField, value: Any) -> str:
    if isinstance(field.kind, Choice):
        return next((name for name in field.kind.names if field.kind.made(name) == value), str(value))
    if key == "array":
        return shortened(_ids(decode(ArrayRange, value)), COLUMNS_MOST)
    if key == "stdin":
        return f"{value} bytes"
    if key == "volumes":
        return ", ".join(str(decode(Volume, each)) for each in value)
    match value:
        case bool():
            return "yes" if value else "no"
        case list():
            return shortened(", ".join(map(str, value)), COLUMNS_MOST)
        case _ if field.at.endswith("_seconds"):
            return show_seconds(float(value))
        case _:
            return str(value)


def _ids(array: ArrayRange) -> str:
    """As they are written after `--array`, up to how pieces are grouped."""
    return ",".join(
        str(first) if first == last else f"{first}-{last}" + (f":{step}" if step != 1 else "")
        for first, last, step in array.pieces
    )
