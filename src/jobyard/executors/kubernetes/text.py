"""Text of objects: YAML, one document after another, as `kubectl apply -f -` takes them."""

from __future__ import annotations

from typing import Any

import yaml

from jobyard.executors.kubernetes.kinds import kind_of, merged
from jobyard.executors.kubernetes.manifest import objects_of
from jobyard.executors.protocol import SubmittedJob

_NUMERIC = tuple("0123456789+-.")


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Go's YAML takes an id like 5e711111 for a number where Python does not: text that begins like a number is quoted.
    style = "|" if "\n" in text else "'" if text[:1] in _NUMERIC else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def render(job: SubmittedJob) -> str:
    """The first attempt, for `--render`."""
    return text_of(job, objects_of(job, 1))


def text_of(job: SubmittedJob, objects: list[dict[str, Any]], queue: str = "") -> str:
    """What alone is sent is let in as it is made; what others belong to waits for them, or for Kueue."""
    first, *children = objects
    if not children and not queue:
        first = merged(first, kind_of(job.spec).admission(first))
    return yaml_of([first, *children])


def yaml_of(objects: list[dict[str, Any]]) -> str:
    text: str = yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text
