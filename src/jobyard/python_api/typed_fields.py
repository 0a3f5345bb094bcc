"""Types of job fields: what may each keyword of `Yard.submit` be? Made of the tables of `manifests/job_fields.py`.

`python -m jobyard.python_api.typed_fields > src/jobyard/python_api/field_types.py` writes them for type checkers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobyard.manifests.declarations import JobField, keys_of
from jobyard.manifests.job_fields import RESOURCES, TOP_LEVEL, TRAINING

_BEGIN = '''"""Job fields for type checkers: which keywords has `Yard.submit`? Generated: do not edit.

Made of `manifests/job_fields.py` by `python -m jobyard.python_api.typed_fields`; see docs/guide/job-fields.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class JobFields(TypedDict, total=False):
'''
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def fields() -> dict[str, JobField]:
    """Every key of a native manifest that says something of a job, by its name; `resources` and `training` too."""
    return {key: field for table in (*TOP_LEVEL, RESOURCES, TRAINING) for key, field in keys_of(table).items()}


def type_of(schema: Mapping[str, Any]) -> str:
    """As Python writes it."""
    if "enum" in schema:
        return f"Literal[{', '.join(_quoted(word) for word in schema['enum'])}]"
    if "anyOf" in schema:
        return _union(*(type_of(each) for each in schema["anyOf"]))
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return _union(*(_of_kind(kind, schema) for kind in kinds))


def _of_kind(kind: str, schema: Mapping[str, Any]) -> str:
    if kind == "array":
        return f"Sequence[{type_of(schema['items'])}]"
    if kind == "object":
        return f"Mapping[str, {type_of(schema['additionalProperties'])}]"
    return _PLAIN[kind]


def _quoted(word: object) -> str:
    return f'"{word}"'


def _union(*types: str) -> str:
    """Each once; what is None comes last."""
    each = dict.fromkeys(part for text in types for part in _parts(text))
    if "float" in each:  # an int is one
        each.pop("int", None)
    return " | ".join(sorted(each, key=lambda part: part == "None"))


def _parts(text: str) -> list[str]:
    """Of a union, without looking into brackets."""
    parts: list[str] = []
    for piece in text.split(" | "):
        if parts and parts[-1].count("[") > parts[-1].count("]"):
            parts[-1] += f" | {piece}"
        else:
            parts.append(piece)
    return parts


def module() -> str:
    """The source of `field_types.py`."""
    return _BEGIN + "".join(f"    {key}: {_optional(field)}\n" for key, field in fields().items())


def _optional(field: JobField) -> str:
    """None counts as left out, so that a caller can pass on what it was given."""
    return _union(type_of(field.kind.schema()), "None")


if __name__ == "__main__":
    print(module(), end="")
