"""JSON Schema: what does a noun look like as JSON? Generated from the type hints that the codec decodes by."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from jobyard.model.codec import encode
from jobyard.model.limits import (
    DEFAULTS,
    LINES,
    NAME_MOST,
    VARIABLES_MOST,
    WORD_BYTES_MOST,
    Items,
    Number,
    Text,
    Variables,
)
from jobyard.model.lines import Lines

Schema = dict[str, Any]
_LINES = "^(?:[^\\x00]*|(?:[^\\x00]*\\x00)+)$"  # each with a newline at its end, or each with NUL
_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    Lines: {"type": "string"},
    Any: {},
}


def schema_of(kind: Any, *, complete: bool = False) -> Schema:
    """What `decode` takes for this kind; with `complete`, what `encode(..., defaults=True)` writes of it."""
    limit = None
    if get_origin(kind) is Annotated:
        kind, limit = get_args(kind)
    schema = _shape(kind, complete)
    limit = limit or (LINES if kind is Lines else DEFAULTS.get(get_origin(kind) or kind))
    # Answers have none: an older yard may have taken more.
    if complete or limit is None:
        return schema
    limits = _limits(limit, schema)
    return {**schema, **limits, "pattern": _LINES} if kind is Lines else {**schema, **limits}


def _shape(kind: Any, complete: bool) -> Schema:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (inner,) = (arg for arg in args if arg is not type(None))
        return {"anyOf": [schema_of(inner, complete=complete), {"type": "null"}]}
    if origin in (tuple, list):
        return _array(args, complete)
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(args[1], complete=complete)}
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if issubclass(kind, Enum):
        return {"type": "string", "enum": [member.value for member in kind]}
    return dict(_object(kind, complete))


def _limits(limit: Text | Number | Items | Variables, schema: Schema) -> Schema:
    """The same limits as `checks` holds a request to, as far as JSON Schema has words for them."""
    match limit:
        case Text():
            pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*$" if limit.is_line else "^[^\\x00]*$"
            return {"minLength": limit.least, "maxLength": limit.most, "pattern": pattern}
        case Number():
            least = "exclusiveMinimum" if limit.is_more else "minimum"
            return {least: limit.least, "maximum": limit.most}
        case Items() if "minItems" in schema:  # it has a length of its own
            return {}
        case Items() if schema["type"] == "object":
            names = _limits(Text(NAME_MOST, 1, is_line=True), schema)
            return {"minProperties": limit.least, "maxProperties": limit.most, "propertyNames": names}
        case Items():
            return {"minItems": limit.least, "maxItems": limit.most}
        case Variables():
            name = "^[^=\\x00]+$" if limit.of_shell else "^[^=\\x00-\\x1f\\x7f-\\x9f]+$"
            names = {"pattern": name, "maxLength": WORD_BYTES_MOST if limit.of_shell else NAME_MOST}
            value = {"type": "string", "pattern": "^[^\\x00]*$", "maxLength": WORD_BYTES_MOST}
            return {"propertyNames": names, "additionalProperties": value, "maxProperties": VARIABLES_MOST}


def _array(args: tuple[Any, ...], complete: bool) -> Schema:
    if len(args) == 1 or args[1] is Ellipsis:
        return {"type": "array", "items": schema_of(args[0], complete=complete)}
    items = [schema_of(arg, complete=complete) for arg in args]
    if all(item == items[0] for item in items):
        return {"type": "array", "items": items[0], "minItems": len(items), "maxItems": len(items)}
    return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}


@cache
def _object(kind: Any, complete: bool) -> Schema:
    hints = get_type_hints(kind, include_extras=True)
    properties, required = {}, []
    for field in dataclasses.fields(kind):
        properties[field.name] = schema_of(hints[field.name], complete=complete)
        default = field.default_factory() if callable(field.default_factory) else field.default
        if default is dataclasses.MISSING or complete:
            required.append(field.name)
        else:
            properties[field.name]["default"] = encode(default)
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    says = kind.__doc__ or ""
    return schema if says.startswith(f"{kind.__name__}(") else {"description": says, **schema}
