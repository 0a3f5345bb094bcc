"""Pickling: how do a function and its arguments become bytes, and what is said where they cannot?"""

from __future__ import annotations

import inspect
import io
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import cloudpickle

from jobyard.errors import UserError

ARGUMENT_BYTES_MOST = 256 << 20  # of one call; larger data belong into files, which a tree sends once and not by call
ARGUMENTS_BYTES_MOST = 1 << 30  # of all calls of a job: a tree has at most 2 GiB
RESULT_BYTES_MOST = 1 << 30  # of one call: it has to fit into memory here
Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]  # of one call: those by position, and those by name
_PLAIN = frozenset({int, float, str, bool, bytes, complex, type(None)})
_WAY_OUT = "make it inside the function, or pass what it is made of"


class _OnGpu(Exception):
    """A tensor that only this process can reach."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Refuses tensors on a GPU: pickled, they would look for the same GPU elsewhere."""

    def persistent_id(self, value: object) -> None:
        if getattr(value, "is_cuda", False) is True:
            raise _OnGpu(f"a {type(value).__name__} on a GPU")


def dumps(value: object) -> bytes:
    """Raises whatever cloudpickle does."""
    if _is_plain(value):  # ten times as fast
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    if "torch" not in sys.modules:  # looking at each object takes time
        return bytes(cloudpickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def _is_plain(call: object) -> bool:
    """Of one call: are its arguments numbers, text and the like? What has a class of its own needs cloudpickle."""
    match call:
        case (tuple() as arguments, {**keywords}) if not keywords:
            return all(type(each) in _PLAIN for each in arguments)
    return False


def pickled_function(function: Callable[..., Any]) -> bytes:
    """Raises UserError that names the variable at fault."""
    try:
        return dumps(function)
    except Exception as error:
        name = name_of(function)
        culprit = next((f" (its variable {each!r})" for each in _culprits(function)), "")
        raise UserError(f"the function {name} cannot be sent to a task: {_why(error)}{culprit}; {_WAY_OUT}") from error


def pickled_arguments(calls: Iterable[Arguments]) -> Iterator[bytes]:
    """Those of each call. Raises UserError that names the call."""
    return (pickled_call(call, f"argument {number}") for number, call in enumerate(calls))


def pickled_call(call: Arguments, what: str) -> bytes:
    """Raises UserError that begins with `what`."""
    try:
        pickled = dumps(call)
    except Exception as error:
        raise UserError(f"{what} cannot be sent to a task: {_why(error)}; {_WAY_OUT}") from error
    if len(pickled) > ARGUMENT_BYTES_MOST:
        raise UserError(
            f"{what} has {len(pickled) >> 20} MiB pickled, more than {ARGUMENT_BYTES_MOST >> 20}; "
            "write it to a file in the working directory, and pass the file's name"
        )
    return pickled


def name_of(function: Callable[..., Any]) -> str:
    inner = getattr(function, "func", function)  # of functools.partial
    return str(getattr(inner, "__name__", None) or type(inner).__name__)


def _why(error: Exception) -> str:
    if isinstance(error, _OnGpu):
        return f"it has {error}, which is in this process alone; pass it on with .cpu()"
    return str(error) or type(error).__name__


def _culprits(function: Callable[..., Any]) -> Iterator[str]:
    """Variables that the function uses and that cannot be pickled."""
    try:
        used = inspect.getclosurevars(inspect.unwrap(function))
    except (TypeError, ValueError):
        return
    for name, value in {**used.globals, **used.nonlocals}.items():
        try:
            dumps(value)
        except Exception:
            yield name
