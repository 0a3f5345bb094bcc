"""Sweep: which values has each parameter of `lr=0.1,0.01` and `seed=0..4`?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from jobyard.errors import UserError
from jobyard.manifests.fields import FieldType, ListOf, Scalar, Schema
from jobyard.manifests.parts import Part
from jobyard.model.input_checks import check_name
from jobyard.model.inputs import Column, Source
from jobyard.model.limits import ROWS_MOST
from jobyard.model.lines import Lines

_NUMBER = r"-?\d+(?:\.\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::({_NUMBER}))?", re.ASCII)
_LIKE_RANGE = re.compile(r"[-+]?\.?\d[\w.+-]*\.\.[-+]?\.?\d[\w.+:-]*", re.ASCII)
_HELP = "write lr=0.1,0.01, seed=0..4 or step=0..100:10"


def parse_parameter(text: str, field: str) -> tuple[str, list[str]]:
    """Of `NAME=VALUES`. Raises UserError that begins with the field."""
    name, equals, values = text.partition("=")
    if not equals:
        raise UserError(f"{text!r:.80} has no values; {_HELP}", field=field)
    check_name(name.strip(), field, "parameter")
    return name.strip(), parse_values(values, field)


def parse_values(text: str, field: str) -> list[str]:
    """Values and ranges with commas between. A number stays as it is written; both ends of a range are in it."""
    found: list[str] = []
    for piece in text.split(","):
        if not piece.strip():
            raise UserError(f"{text!r:.80} has an empty value; {_HELP}", field=field)
        match = _RANGE.fullmatch(piece.strip())
        if match is None and _LIKE_RANGE.fullmatch(piece.strip()):
            raise UserError(
                f"{piece.strip()!r:.80} is no range of plain numbers, as in 0..4 or 0..1:0.1; "
                "list the values, as in lr=1e-4,1e-3,1e-2",
                field=field,
            )
        found += [piece.strip()] if match is None else _of_range(match, field)
        if len(found) > ROWS_MOST:
            raise UserError(f"{text!r:.80} has more than {ROWS_MOST:,} values; split it into several jobs", field=field)
    return found


def _of_range(match: re.Match[str], field: str) -> list[str]:
    first, last = Decimal(match[1]), Decimal(match[2])
    if match[3] is None and "." in f"{match[1].replace('..', '')}{match[2]}":
        raise UserError(f"{match[0]!r} needs a step, as in {match[0]}:0.1", field=field)
    step = Decimal(match[3] or 1)
    if last < first:
        raise UserError(f"{match[0]!r} runs backwards; write {match[2]}..{match[1]}", field=field)
    if step <= 0:
        raise UserError(f"the step in {match[0]!r} must be more than 0; {_HELP}", field=field)
    count = int((last - first) / step) + 1
    if count > ROWS_MOST:
        raise UserError(f"{match[0]!r} has {count:,} values; at most {ROWS_MOST:,} are possible", field=field)
    return [f"{first + step * index:f}" for index in range(count)]


def source_of(parameter: tuple[str, list[str]]) -> Source:
    name, values = parameter
    return Source((Column(Lines.of(values), name),))


@dataclass(frozen=True)
class SweepKind(FieldType):
    """A mapping from names to values: a list, whose items are taken as they are, or text as after the flag."""

    def read(self, part: Part, path: str) -> list[tuple[str, list[str]]]:
        if not isinstance(part.value, dict) or not part.value:
            raise part.error(path, f"must be a mapping, as in {{lr: [0.1, 0.01], seed: 0..4}}, not {part.shown}")
        return [(name, self._values(name, item, path)) for name, item in part.value.items()]

    def _values(self, name: str, item: Part, path: str) -> list[str]:
        where = f"{path}.{name}"
        if isinstance(item.value, list):
            values = ListOf(Scalar(), least=1).read(item, where)
        else:
            text = Scalar().read(item, where)
        try:
            check_name(name, path, "parameter")
            return values if isinstance(item.value, list) else parse_values(text, where)
        except UserError as error:
            raise UserError(f"{item.file}: line {item.line}: {error}") from None

    def from_flag(self, value: Any, flag: str) -> list[tuple[str, list[str]]]:
        return [parse_parameter(text, flag) for text in value]

    def schema(self) -> Schema:
        one = {"type": ["string", "number", "boolean"]}
        values = {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}
        return {
            "type": "object",
            "additionalProperties": values,
            "propertyNames": {"pattern": r"^[A-Za-z_][A-Za-z0-9_]*$"},
            "minProperties": 1,
        }
