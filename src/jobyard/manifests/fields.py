"""Manifest fields (schema): what may a manifest say? They read a document's parts and print themselves as JSON Schema.

One table of fields is the source of both, so that what an editor accepts is what `yard run` accepts. The reader is
more generous in two ways: a field without a value counts as left out, and text may be a bare `true` or `42`.
"""

from __future__ import annotations

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobyard.errors import UserError
from jobyard.manifests.parts import Part
from jobyard.model.limits import range_of

Schema = dict[str, Any]
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


class FieldType(ABC):
    """One kind of value: how it is read, and how JSON Schema says so."""

    @abstractmethod
    def read(self, part: Part, path: str) -> Any:
        """The value. Raises UserError with file, line, path, what was found and what to write."""

    @abstractmethod
    def schema(self) -> Schema: ...

    def from_flag(self, value: Any, flag: str) -> Any:
        """The same of what a flag was given. Raises UserError that begins with the flag."""
        return value


def _scalar(part: Part, path: str, wanted: str) -> str:
    if not isinstance(part.value, str) or part.sort == "null":
        raise part.error(path, f"must be {wanted}, not {part.shown}")
    return part.value


@dataclass(frozen=True)
class TextType(FieldType):
    pattern: str = ""
    wanted: str = "text"

    def read(self, part: Part, path: str) -> str:
        text = _scalar(part, path, self.wanted)
        if self.pattern and not re.search(self.pattern, text):
            raise part.error(path, f"{text!r} is not allowed; write {self.wanted}")
        return text

    def schema(self) -> Schema:
        return {"type": "string", **({"pattern": self.pattern} if self.pattern else {})}


@dataclass(frozen=True)
class Scalar(FieldType):
    """Text, a number or true/false, taken as written."""

    def read(self, part: Part, path: str) -> str:
        return _scalar(part, path, "text, a number or true/false")

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean"]}


@dataclass(frozen=True)
class VariableType(FieldType):
    """The value of a variable; one without a value is None, which stands for that of the submitting shell."""

    def read(self, part: Part, path: str) -> str | None:
        return None if part.sort == "null" else Scalar().read(part, path)

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean", "null"]}


@dataclass(frozen=True)
class Whole(FieldType):
    least: int
    most: int

    @classmethod
    def within(cls, hint: Any) -> Whole:
        """With the range of a hint of `model.limits`."""
        limit = range_of(hint)
        return cls(int(limit.least), int(limit.most))

    def read(self, part: Part, path: str) -> int:
        text = _scalar(part, path, self._wanted)
        if part.sort not in ("whole", "number") or not _WHOLE.fullmatch(text):
            raise part.error(path, f"must be {self._wanted}, not {part.shown}")
        if not self.least <= int(text) <= self.most:
            raise part.error(path, f"{text} is out of range; write {self._wanted}")
        return int(text)

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    def from_flag(self, value: Any, flag: str) -> int:
        text = str(value).strip()
        if not _WHOLE.fullmatch(text):
            raise UserError(f"{text!r} is not a whole number; write {self._wanted}", field=flag)
        if not self.least <= int(text) <= self.most:
            raise UserError(f"{text} is out of range; write {self._wanted}", field=flag)
        return int(text)

    @property
    def _wanted(self) -> str:
        return f"a whole number from {self.least} to {self.most}"


@dataclass(frozen=True)
class NumberType(FieldType):
    above_zero: bool = False

    def read(self, part: Part, path: str) -> float:
        wanted = "a number more than 0" if self.above_zero else "a number, 0 or more"
        text = _scalar(part, path, wanted)
        if part.sort not in ("whole", "number") or not re.fullmatch(r"[+-]?[0-9.]+([eE][+-]?[0-9]{1,2})?", text):
            raise part.error(path, f"must be {wanted}, not {part.shown}")
        number = float(text)
        if not 0 <= number < 1e12 or (self.above_zero and number == 0):
            raise part.error(path, f"{text} is out of range; write {wanted}")
        return number

    def schema(self) -> Schema:
        return {"type": "number", "exclusiveMinimum" if self.above_zero else "minimum": 0}


@dataclass(frozen=True)
class Flag(FieldType):
    def read(self, part: Part, path: str) -> bool:
        if part.sort != "flag":
            raise part.error(path, f"must be true or false, not {part.shown}")
        return str(part.value).lower() in ("true", "yes", "on")

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Choice(FieldType):
    names: tuple[str, ...]
    made: Callable[[str], Any] = str  # what a name stands for

    def read(self, part: Part, path: str) -> Any:
        text = _scalar(part, path, f"one of {', '.join(self.names)}")
        if text not in self.names:
            near = difflib.get_close_matches(text, self.names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(self.names)}"
            raise part.error(path, f"unknown value {text!r}; {hint}")
        return self.made(text)

    def schema(self) -> Schema:
        return {"enum": list(self.names)}

    def from_flag(self, value: Any, flag: str) -> Any:
        if value not in self.names:
            raise UserError(f"unknown value {value!r}; write {' or '.join(self.names)}", field=flag)
        return self.made(value)


@dataclass(frozen=True)
class Parsed(FieldType):
    """Text in a notation of its own; `parse(text, path)` raises UserError that begins with the path."""

    parse: Callable[[str, str], Any]
    json: Mapping[str, Any]
    wanted: str

    def read(self, part: Part, path: str) -> Any:
        text = _scalar(part, path, self.wanted)
        if part.sort == "flag":
            raise part.error(path, f"must be {self.wanted}, not {part.shown}")
        try:
            return self.parse(text, path)
        except UserError as error:
            raise UserError(f"{part.file}: line {part.line}: {error}") from None

    def schema(self) -> Schema:
        return dict(self.json)

    def from_flag(self, value: Any, flag: str) -> Any:
        return self.parse(value, flag)


@dataclass(frozen=True)
class ListOf(FieldType):
    item: FieldType
    or_one: bool = False  # a single item may stand without the list around it
    least: int = 0
    is_flat: bool = False  # what is read of an item are several

    def read(self, part: Part, path: str) -> list[Any]:
        if self.or_one and not isinstance(part.value, list | dict):
            return self._joined([self.item.read(part, path)])
        if not isinstance(part.value, list):
            raise part.error(path, f"must be a list, not {part.shown}")
        if len(part.value) < self.least:
            raise part.error(path, "is an empty list; write at least one item or leave the key out")
        return self._joined([self.item.read(item, f"{path}[{index}]") for index, item in enumerate(part.value)])

    def from_flag(self, value: Any, flag: str) -> list[Any]:
        return self._joined([self.item.from_flag(item, flag) for item in value])

    def _joined(self, items: list[Any]) -> list[Any]:
        return [each for item in items for each in item] if self.is_flat else items

    def schema(self) -> Schema:
        many: Schema = {
            "type": "array",
            "items": self.item.schema(),
            **({"minItems": self.least} if self.least else {}),
        }
        return {"anyOf": [self.item.schema(), many]} if self.or_one else many


@dataclass(frozen=True)
class MapOf(FieldType):
    item: FieldType
    key: TextType = field(default_factory=TextType)
    least: int = 0

    def read(self, part: Part, path: str) -> dict[str, Any]:
        if part.sort == "null":
            part = Part({}, "map", part.file, part.line)
        if not isinstance(part.value, dict):
            raise part.error(path, f"must be a mapping of names, not {part.shown}")
        if len(part.value) < self.least:
            raise part.error(path, "is empty; write at least one entry")
        found = {}
        for name, item in part.value.items():
            self.key.read(Part(name, "text", item.file, item.line), f"{path}: the name")
            found[name] = self.item.read(item, f"{path}.{name}")
        return found

    def schema(self) -> Schema:
        names = {"propertyNames": {"pattern": self.key.pattern}} if self.key.pattern else {}
        least = {"minProperties": self.least} if self.least else {}
        return {"type": "object", "additionalProperties": self.item.schema(), **names, **least}


@dataclass(frozen=True)
class Anything(FieldType):
    """Not checked here: the executor reads it."""

    def read(self, part: Part, path: str) -> Part:
        return part

    def schema(self) -> Schema:
        return {}


@dataclass(frozen=True)
class Field:
    kind: FieldType
    description: str
    default: Any = None
    required: bool = False

    def schema(self) -> Schema:
        default = {} if self.default is None else {"default": self.default}
        return {**self.kind.schema(), "description": self.description, **default}


@dataclass(frozen=True)
class RecordType(FieldType):
    """A mapping with known keys. What was not written is not in the result; `filled` adds the defaults."""

    fields: Mapping[str, Field]
    rules: Mapping[str, Any] = field(default_factory=dict)  # rules of JSON Schema that concern several fields

    def read(self, part: Part, path: str) -> dict[str, Any]:
        inside = path or "top level"
        if part.sort != "null" and not isinstance(part.value, dict):
            raise part.error(inside, f"must be a mapping of {', '.join(self.fields)}, not {part.shown}")
        parts = part.value if isinstance(part.value, dict) else {}
        found = {}
        for key, item in parts.items():
            if key not in self.fields:
                raise UserError(f"{item.file}: line {item.line}: unknown key {key!r} in {inside}; {self._hint(key)}")
            known = self.fields[key]
            if item.sort != "null" or isinstance(known.kind, RecordType):
                found[key] = known.kind.read(item, f"{path}.{key}" if path else key)
        for key, known in self.fields.items():
            if known.required and key not in found:
                raise part.error(inside, f"{key!r} is missing ({known.description})")
        return found

    def filled(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: values.get(key, known.default) for key, known in self.fields.items()}

    def schema(self) -> Schema:
        required = [key for key, known in self.fields.items() if known.required]
        return {
            "type": "object",
            "properties": {key: known.schema() for key, known in self.fields.items()},
            "additionalProperties": False,
            **({"required": required} if required else {}),
            **self.rules,
        }

    def _hint(self, key: str) -> str:
        near = difflib.get_close_matches(key, self.fields, n=1, cutoff=0.6)
        by_case = [name for name in self.fields if name.lower() == key.lower().replace("-", "_")]
        best = by_case or near
        return f"did you mean {best[0]!r}?" if best else f"known: {', '.join(self.fields)}"
