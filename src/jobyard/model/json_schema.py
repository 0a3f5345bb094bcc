"""JSON Schema: what does a noun look like as JSON? Made from the type hints that the codec decodes by."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from jobyard.model.codec import encode
from jobyard.model.job import Lines

Schema = dict[str, Any]
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
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return schema_of(args[0], complete=complete)
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
    return _object(kind, complete)


def _array(args: tuple[Any, ...], complete: bool) -> Schema:
    if len(args) == 1 or args[1] is Ellipsis:
        return {"type": "array", "items": schema_of(args[0], complete=complete)}
    items = [schema_of(arg, complete=complete) for arg in args]
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
