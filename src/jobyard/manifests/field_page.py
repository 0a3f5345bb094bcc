"""Page of job fields: what does docs/guide/job-fields.md say? Written by `python -m jobyard.manifests.field_page`."""

from __future__ import annotations

from collections.abc import Iterator

from jobyard.manifests.declarations import JobField, Table, spellings
from jobyard.manifests.input_fields import INPUTS
from jobyard.manifests.job_fields import CONTAINER, JOB, KUBERNETES, POLICY, RESOURCES, STAGING, TRAINING

_BEGIN = """# Every flag and key of a job

The flags of `yard run` and `yard submit`, and the keys of a [native manifest](manifests.md#native-manifest), which has
`command` and `groups` beside them. The flags may also stand after `#YARD`. This page is made from the tables in
`manifests/job_fields.py`.
"""
_GROUPS: tuple[tuple[str, str, Table], ...] = (
    ("The job", "", JOB),
    ("A task for each value", "", INPUTS),
    ("How it runs", "", POLICY),
    ("What one task needs", "resources.", RESOURCES),
    ("Image", "", CONTAINER),
    ("Kubernetes", "", KUBERNETES),
    ("Files on other machines", "", STAGING),
    ("Training", "training.", TRAINING),
)


def page() -> str:
    sections = ("\n".join(section(title, inside, table)) for title, inside, table in _GROUPS)
    return "\n".join((_BEGIN, *sections))


def section(title: str, inside: str, table: Table) -> Iterator[str]:
    yield f"## {title}\n\n| flag | key | means |\n|---|---|---|"
    for key, field in table.items():
        yield row(key, field, inside)
    yield ""


def row(key: str, field: JobField, inside: str = "") -> str:
    """What the manifest's key means; of a flag without a key, what its help says."""
    option, flag = field.option, ""
    if option is not None:
        flag = ", ".join(f"`{word}`" for word in spellings(option.name or key, option))
        flag += f" `{option.metavar}`" if option.metavar else ""
    shown = f"`{inside}{key}`" if field.is_key else ""
    means = option.help if option is not None and not field.is_key else field.description
    return " | ".join(("", *(cell.replace("|", "\\|") for cell in (flag, shown, means)), "")).strip()


if __name__ == "__main__":
    print(page(), end="")
