"""Codec (serialisation): how do nouns become JSON and come back? One for the journal, the wire and `-o json`.

A frozen dataclass is an object with its defaults left out, a NamedTuple is a list, an enum is its value. Decoding is
strict: an unknown or missing field, or a value of the wrong type, is a UserError that names it.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from reprlib import Repr
from typing import Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from jobyard.errors import UserError
from jobyard.model.lines import Lines

T = TypeVar("T")
Decoder = Callable[[Any, str], Any]
LARGEST_INT = 2**63  # what SQLite, JSON readers and floats still take

_SHORT = Repr()  # shortens a value in a message: it may be as large as a request
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


class _Field(NamedTuple):
    name: str
    decode: Decoder
    default: Any  # to compare with; MISSING: it has none


def encode(value: Any, *, defaults: bool = False) -> Any:
    """JSON-ready data. With `defaults`, fields at their default are written out too (for programs that read it)."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Lines):
        return value.text
    if isinstance(value, tuple | list):
        return [encode(item, defaults=defaults) for item in value]
    if isinstance(value, Mapping):
        return {str(key): encode(item, defaults=defaults) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        data = {}
        for field in _fields(type(value)).values():
            item = getattr(value, field.name)
            if defaults or item != field.default:
                data[field.name] = encode(item, defaults=defaults)
        return data
    raise TypeError(f"cannot encode {type(value).__name__}")


def decode(kind: type[T], data: Any, where: str = "") -> T:
    """The noun that `data` describes. Raises UserError naming the field where it does not fit."""
    decoder: Decoder = _decoder(cast(Any, kind))
    return cast(T, decoder(data, where or kind.__name__))


@cache
def _fields(kind: type) -> dict[str, _Field]:
    hints = get_type_hints(kind)
    found = {}
    for field in dataclasses.fields(kind):
        default = field.default_factory() if callable(field.default_factory) else field.default
        found[field.name] = _Field(field.name, _decoder(hints[field.name]), default)
    return found


@cache
def _decoder(kind: Any) -> Decoder:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda data, where: data
    if origin in (Union, types.UnionType):
        (inner,) = (arg for arg in args if arg is not type(None))
        decode_inner = _decoder(inner)
        return lambda data, where: None if data is None else decode_inner(data, where)
    if origin is tuple:
        return _tuple_decoder(args)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_decoder(_decoder(args[1]))
    if kind is Lines:
        return lambda data, where: Lines(_expect(str, data, where))
    if issubclass(kind, Enum):
        return lambda data, where: _enum_member(kind, data, where)
    if issubclass(kind, tuple):  # a NamedTuple
        return _named_tuple_decoder(kind)
    if dataclasses.is_dataclass(kind):
        return lambda data, where: _dataclass(cast(type, kind), data, where)
    return lambda data, where: _expect(kind, data, where)


def _expect(kind: type, data: Any, where: str) -> Any:
    if kind is float and type(data) is int and abs(data) < LARGEST_INT:
        return float(data)
    if kind is int and type(data) is float and data.is_integer() and abs(data) < LARGEST_INT:
        return int(data)  # JSON has one kind of number: 2.0 is a whole one
    if type(data) is not kind:
        raise UserError(f"expected {kind.__name__}, got {_SHORT.repr(data)}", field=where)
    return data


def _enum_member(kind: type[Enum], data: Any, where: str) -> Enum:
    try:
        return kind(data)
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        raise UserError(f"{_SHORT.repr(data)} is none of {known}", field=where) from None


def _tuple_decoder(args: tuple[Any, ...]) -> Decoder:
    if len(args) == 2 and args[1] is Ellipsis:
        decode_item = _decoder(args[0])
        return lambda data, where: tuple(
            decode_item(item, f"{where}[{i}]") for i, item in enumerate(_expect(list, data, where))
        )
    decoders = [_decoder(arg) for arg in args]

    def decode_fixed(data: Any, where: str) -> tuple[Any, ...]:
        if len(_expect(list, data, where)) != len(decoders):
            raise UserError(f"expected {len(decoders)} items, got {len(data)}", field=where)
        return tuple(each(item, f"{where}[{i}]") for i, (each, item) in enumerate(zip(decoders, data, strict=True)))

    return decode_fixed


def _named_tuple_decoder(kind: Any) -> Decoder:
    """The last fields may be missing if they have defaults: an older version wrote the data."""
    decode_items = _tuple_decoder(tuple(get_type_hints(kind).values()))
    defaults = kind._field_defaults

    def decode_named(data: Any, where: str) -> Any:
        missing = kind._fields[len(_expect(list, data, where)) :]
        return kind(*decode_items([*data, *(encode(defaults[name]) for name in missing if name in defaults)], where))

    return decode_named


def _mapping_decoder(decode_value: Decoder) -> Decoder:
    return lambda data, where: {
        key: decode_value(value, f"{where}.{key}") for key, value in _expect(dict, data, where).items()
    }


def _dataclass(kind: type, data: Any, where: str) -> Any:
    _expect(dict, data, where)
    if hasattr(kind, "upgraded"):
        data = kind.upgraded(data)
    fields = _fields(kind)
    for key in data:
        if key not in fields:
            raise UserError(f"unknown field {_SHORT.repr(key)}; known: {', '.join(fields)}", field=where)
    try:
        return kind(**{key: fields[key].decode(value, f"{where}.{key}") for key, value in data.items()})
    except TypeError as error:
        missing = [name for name, f in fields.items() if name not in data and f.default is dataclasses.MISSING]
        if not missing:
            raise
        raise UserError(f"missing {', '.join(missing)}", field=where) from error
