"""Job spec from Python: which job do a command or a manifest, and keywords with the names of its keys, describe?"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from jobyard.errors import UserError
from jobyard.manifests.command_names import name_from_command
from jobyard.manifests.context import SubmitContext, user_here
from jobyard.manifests.fields import RecordType
from jobyard.manifests.job_fields import FLAGGED, RESOURCES, TRAINING
from jobyard.manifests.native import spec_from_native
from jobyard.manifests.overrides import Overrides
from jobyard.manifests.parts import Part
from jobyard.manifests.written import Written
from jobyard.model.job import Command, JobSpec
from jobyard.python_api.typed_fields import fields

Asked = str | Sequence[Any] | Mapping[str, Any]
_FILE = "<python>"  # where a part of a document says that it stands: what a caller wrote has no file and no line
_PREFIX = re.compile(rf"^{re.escape(_FILE)}: line 0: ")
_FLAG = re.compile(r"(?<!\S)--([a-z][a-z-]*)")
_VALUES = (
    "write sweep={'x': ['a', 'b']}, and {x} in the command; a file of values is each_line='FILE', which {} stands for"
)
_NESTED = {"resources": RESOURCES, "training": TRAINING}


def spec_from(asked: Asked, said: Mapping[str, Any], *, environ: Mapping[str, str], source: str = "python") -> JobSpec:
    """The job. Text is a line of bash, a list a program and its arguments, a mapping a native manifest.

    What is said by keywords wins over the manifest; None counts as left out. Raises UserError that names the key.
    """
    context = SubmitContext(_here(), environ, user_here())
    document = _document(asked, {key: value for key, value in said.items() if value is not None})
    with _without_place(is_flat=not isinstance(asked, Mapping)):
        spec = spec_from_native(_part(document, ""), Overrides(), context)
    return replace(spec, submitter=replace(spec.submitter, source=source, host=platform.node()))


@contextmanager
def refused_as_said(spec: JobSpec) -> Iterator[None]:
    """The server's refusals of the job name keywords, where it names flags or places of a spec."""
    try:
        yield
    except UserError as error:
        sentence = Written(Overrides()).sentence(error, spec)
        raise type(error)(_FLAG.sub(_keyword, sentence)) from None


def _keyword(match: re.Match[str]) -> str:
    name = match[1].replace("-", "_")
    key = next((key for key, field in fields().items() if field.option and (field.option.name or key) == name), name)
    return key if name in FLAGGED else match[0]


def _document(asked: Asked, said: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest that they amount to."""
    _refuse_unknown(said)
    document: dict[str, Any] = {}
    document |= asked if isinstance(asked, Mapping) else {"command": _command(asked), "name": _name(asked)}
    for key, value in said.items():
        place = next((place for place, table in _NESTED.items() if key in table), "")
        if place:
            document[place] = {**(document.get(place) or {}), key: value}
        else:
            document[key] = value
    return document


def _command(asked: str | Sequence[Any]) -> str | list[Any]:
    return asked if isinstance(asked, str) else [os.fspath(w) if isinstance(w, os.PathLike) else w for w in asked]


def _name(asked: str | Sequence[Any]) -> str:
    if isinstance(asked, str):
        return name_from_command(Command(shell=asked))
    return name_from_command(Command(argv=tuple(map(str, asked))))


def _refuse_unknown(said: Mapping[str, Any]) -> None:
    known = RecordType(fields())
    if "inputs" in said:
        raise UserError(f"unknown key 'inputs'; {_VALUES}")
    for key in said.keys() - known.fields.keys():
        with _without_place():
            known.read(Part({key: _part(None, key)}, "map", _FILE, 0), "")


def _part(value: object, path: str) -> Part:
    """A value of Python as a part of a document."""
    match value:
        case None:
            return Part("", "null", _FILE, 0)
        case bool():
            return Part(str(value).lower(), "flag", _FILE, 0)
        case int():
            return Part(str(value), "whole", _FILE, 0)
        case float():
            return Part(repr(value), "number", _FILE, 0)
        case str():
            return Part(str(value), "text", _FILE, 0)
        case os.PathLike():
            return Part(os.fspath(value), "text", _FILE, 0)
        case Mapping():
            below = {str(key): _part(each, f"{path}.{key}".lstrip(".")) for key, each in value.items()}
            return Part(below, "map", _FILE, 0)
        case list() | tuple() | range():
            return Part([_part(each, f"{path}[{at}]") for at, each in enumerate(value)], "list", _FILE, 0)
    raise UserError(f"{path}: a job cannot hold a {type(value).__name__}; write text, a number, a list or a dict")


@contextmanager
def _without_place(*, is_flat: bool = True) -> Iterator[None]:
    """Errors without the file and line that there are not, and keys as they were said."""
    try:
        yield
    except UserError as error:
        sentence = _PREFIX.sub("", str(error)).replace(" in top level;", ";")
        if is_flat:
            sentence = re.sub(rf"^({'|'.join(_NESTED)})\.", "", sentence)
        raise type(error)(sentence) from None


def _here() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise UserError(f"the current directory cannot be used ({error.strerror}); change to another one") from None
