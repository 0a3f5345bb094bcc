"""Checks (validation): is a noun within its limits? Asked of every request before it is journalled, and only then."""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

from jobyard.errors import UserError
from jobyard.model.limits import (
    DEFAULTS,
    ENVIRONMENT_BYTES_MOST,
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

Check = Callable[[Any, str], None]
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_VARIABLE = Text(NAME_MOST, 1, is_line=True)
_VALUE = Text(WORD_BYTES_MOST)
_SHELL_VARIABLE = Text(WORD_BYTES_MOST, 1, is_path=True)
_SHELL_VALUE = Text(WORD_BYTES_MOST, is_path=True)
_OF_A_NAME = "a name in it: "


def check(noun: Any) -> None:
    """Raises UserError that names the first field beyond its limit, and the limit."""
    check_noun: Check = _check_of(cast(Any, type(noun)))
    check_noun(noun, type(noun).__name__)


@cache
def _check_of(hint: Any) -> Check:
    limit = None
    if get_origin(hint) is Annotated:
        hint, limit = get_args(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (arg for arg in args if arg is not type(None))
        check_inner = _check_of(inner)
        return lambda value, where: None if value is None else check_inner(value, where)
    if isinstance(limit, Variables):
        of_shell = limit.of_shell
        return lambda value, where: _variables(value, where, of_shell=of_shell)
    if origin is tuple or (origin is not None and issubclass(origin, Mapping)):
        return _many_check(args, cast(Items, limit or DEFAULTS[tuple]))
    if hint is Lines:
        return lambda value, where: _text(
            value.text.replace("\0", "\n") if value.has_breaks else value.text, where, LINES
        )
    limit = limit or DEFAULTS.get(hint)
    if isinstance(limit, Text):
        return lambda value, where: _text(value, where, limit)
    if isinstance(limit, Number):
        return lambda value, where: _number(value, where, limit)
    if dataclasses.is_dataclass(hint):
        return _fields_check(cast(type, hint))
    return lambda value, where: None  # a bool or an enum


def _fields_check(kind: type) -> Check:
    hints = get_type_hints(kind, include_extras=True)
    checks = [(field.name, _check_of(hints[field.name])) for field in dataclasses.fields(kind)]

    def check_fields(noun: Any, where: str) -> None:
        for name, each in checks:
            each(getattr(noun, name), f"{where}.{name}")

    return check_fields


def _many_check(args: tuple[Any, ...], limit: Items) -> Check:
    fixed = args if args[-1] is not Ellipsis else ()
    checks = [_check_of(arg) for arg in args if arg is not Ellipsis]

    def check_items(items: Any, where: str) -> None:
        if isinstance(items, tuple) and fixed:
            for index, (each, item) in enumerate(zip(checks, items, strict=True)):
                each(item, f"{where}[{index}]")
            return
        if not limit.least <= len(items) <= limit.most:
            raise UserError(f"{len(items)} items; give {_span(limit.least, limit.most)}", field=where)
        if isinstance(items, Mapping):
            for name, value in items.items():
                _text(name, where, _VARIABLE, _OF_A_NAME)
                checks[-1](value, f"{where}.{name}")
        else:
            for index, item in enumerate(items):
                checks[0](item, f"{where}[{index}]")

    return check_items


def _number(value: float, where: str, limit: Number) -> None:
    # NaN compares false with everything, and an int may be too large to become a float.
    is_within = limit.least < value <= limit.most if limit.is_more else limit.least <= value <= limit.most
    if not is_within:
        at_least = f"{'more than' if limit.is_more else 'at least'} {limit.least:.16g}"
        raise UserError(f"{value!r:.40} is out of range; give {at_least} and at most {limit.most:.16g}", field=where)


def _text(value: str, where: str, limit: Text, what: str = "") -> None:
    if not limit.least <= len(value) <= limit.most:
        span = _span(limit.least, limit.most)
        raise UserError(f"{what}{len(value)} characters ({value[:40]!a}); give {span}", field=where)
    if limit.is_line and limit.least and value.isspace():
        raise UserError(f"{what}{value[:40]!a} is blank; write a name", field=where)
    if "\0" in value:
        shown = _around(value, value.index("\0"))
        raise UserError(f"{what}{shown} has a NUL byte, which nothing can take", field=where)
    try:
        size = len(value.encode("utf-8", "surrogateescape" if limit.is_path else "strict"))
    except UnicodeEncodeError as error:
        shown = _around(value, error.start)
        raise UserError(f"{what}{shown} is not UTF-8; write it as UTF-8, or put it into a file", field=where) from None
    if limit.bytes_most is not None and size > limit.bytes_most:
        raise UserError(f"{what}{size} bytes; at most {limit.bytes_most} are possible, put it into a file", field=where)
    if limit.is_line and (found := CONTROL.search(value)):
        raise UserError(f"{what}{_around(value, found.start())} has a control character; leave it out", field=where)


def _variables(variables: Mapping[str, str], where: str, *, of_shell: bool) -> None:
    if len(variables) > VARIABLES_MOST:
        raise UserError(f"{len(variables)} variables; at most {VARIABLES_MOST} are possible", field=where)
    total = 0
    for name, value in variables.items():
        _text(name, where, _SHELL_VARIABLE if of_shell else _VARIABLE, _OF_A_NAME)
        if "=" in name:
            raise UserError(f"{name[:40]!a} is not a variable's name; write letters, digits and _", field=where)
        _text(value, f"{where}.{name}", _SHELL_VALUE if of_shell else _VALUE)
        size = len(f"{name}={value}\0".encode("utf-8", "surrogateescape"))
        if size > WORD_BYTES_MOST:
            raise UserError(f"{where}.{name}: {size} bytes; at most {WORD_BYTES_MOST} are possible, put it into a file")
        total += size
    if total > ENVIRONMENT_BYTES_MOST:
        raise UserError(f"{total} bytes in all; at most {ENVIRONMENT_BYTES_MOST} are possible", field=where)


def _around(text: str, index: int) -> str:
    """The text near this position, safe to print anywhere."""
    begin = max(0, index - 20)
    return ascii(text[begin : begin + 40])


def _span(least: int, most: int) -> str:
    return f"{least} to {most}" if least else f"at most {most}"
