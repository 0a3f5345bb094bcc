"""Inputs: which rows of values has a job, by what stands after `:::`, in files of lines or JSON, and in a sweep?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jobyard.errors import UserError
from jobyard.manifests.column_cutting import CuttingFailed, cut_lines
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.files import lines_of, read_text
from jobyard.manifests.input_words import InputWords
from jobyard.manifests.sweep import source_of
from jobyard.model.input_checks import check_inputs, check_name
from jobyard.model.inputs import Column, Inputs, Source
from jobyard.model.lines import Lines

GIVING = ("inputs", "each_line", "each_json", "sweep")  # what has values
CUTTING = ("colsep", "header", "nul", "values_per_task")  # how lines and words are cut into values


@dataclass(frozen=True)
class _Cut:
    """How each line, or word after `:::`, becomes values."""

    colsep: str = ""  # a regular expression; empty: each line is one value
    has_header: bool = False
    per_task: int = 1
    ends_with_nul: bool = False
    notes: list[str] = field(default_factory=list)  # what a person should be told of the cutting

    def values(self, file: str, context: SubmitContext, where: str) -> list[str]:
        """Of a file, without those that are blank."""
        text = read_text(file, context, where, may_have_nul=self.ends_with_nul)
        if self.ends_with_nul and "\0" not in text and "\n" in text:
            raise UserError(f"{file!r} has no NUL after its values, but lines; leave --nul out", field=where)
        found = [each for each in (text.split("\0") if self.ends_with_nul else lines_of(text)) if each.strip()]
        if not found:
            raise UserError(f"{file!r} is empty; it needs one line per task", field=where)
        return found

    def columns(self, values: list[str], where: str) -> tuple[Column, ...]:
        rows = self._rows(values, where)
        names = _names(rows.pop(0), where) if self.has_header else [""] * max(map(len, rows), default=1)
        if not rows:
            after = " after its header" if self.has_header else ""
            raise UserError(f"it has no values{after}; give one at least", field=where)
        if self.per_task > 1:
            return self._grouped([row[0] for row in rows])
        rows = self._filled(rows, len(names), where)
        return tuple(Column(Lines.of(row[index] for row in rows), name) for index, name in enumerate(names))

    def _rows(self, values: list[str], where: str) -> list[list[str]]:
        if not self.colsep:
            return [[value] for value in values]
        try:
            return cut_lines(self.colsep, values)
        except CuttingFailed as error:
            raise UserError(f"colsep {error}", field=where) from None

    def _filled(self, rows: list[list[str]], width: int, where: str) -> list[list[str]]:
        """As parallel does; but a table with a header has as many columns as that, or a separator was forgotten."""
        odd = [number for number, row in enumerate(rows, start=1) if len(row) != width]
        if not odd:
            return rows
        if self.has_header:
            raise UserError(
                f"row {odd[0]} has {_columns(len(rows[odd[0] - 1]))}, and the header {_columns(width)}; "
                "give each row as many",
                field=where,
            )
        some = f"{len(odd)} of {len(rows)} rows of {where}"
        self.notes.append(f"{some} have fewer columns than {width}; what they lack is empty")
        return [[*row, *[""] * (width - len(row))] for row in rows]

    def _grouped(self, values: list[str]) -> tuple[Column, ...]:
        columns = (values[start :: self.per_task] for start in range(self.per_task))
        return tuple(Column(Lines.of(column)) for column in columns)


class Given(NamedTuple):
    """The rows, and what a person should be told of them."""

    inputs: Inputs
    notes: tuple[str, ...] = ()


def read_inputs(said: Mapping[str, Any], context: SubmitContext, shown: Callable[[str], str] = str) -> Given | None:
    """What the fields say, by their names; `shown` says how a person wrote a field. Raises UserError."""
    cut = _Cut(
        said.get("colsep") or "",
        bool(said.get("header")),
        1 if said.get("values_per_task") is None else said["values_per_task"],
        bool(said.get("nul")),
    )
    sources = list(_sources(said, cut, context, shown))
    lined = any(said.get(name) for name in ("inputs", "each_line"))
    if not lined and (without := next((name for name in CUTTING if said.get(name) is not None), "")):
        raise UserError(
            f"it is for values of ::: or {shown('each_line')}; give some, or leave it out", field=shown(without)
        )
    if not sources:
        return None
    if cut.per_task > 1 and (cut.colsep or cut.has_header or len(sources) - len(said.get("sweep") or ()) > 1):
        raise UserError(
            "several values for a task are taken from one source without columns; give one ::: or one file",
            field=shown("values_per_task"),
        )
    found = Inputs(tuple(sources))
    check_inputs(found)
    return Given(found, tuple(cut.notes))


def _sources(
    said: Mapping[str, Any], cut: _Cut, context: SubmitContext, shown: Callable[[str], str]
) -> Iterator[Source]:
    if said.get("each_line"):
        where = shown("each_line")
        yield Source(cut.columns(cut.values(said["each_line"], context, where), f"{where} {said['each_line']}"))
    if said.get("each_json"):
        yield _of_json(
            _Cut().values(said["each_json"], context, shown("each_json")), f"{shown('each_json')} {said['each_json']}"
        )
    yield from _of_words(said.get("inputs") or (), cut, context)
    yield from map(source_of, said.get("sweep") or ())


def _of_words(words: Sequence[InputWords], cut: _Cut, context: SubmitContext) -> Iterator[Source]:
    found: list[Source] = []
    for each in words:
        for columns, where in _columns_of(each, cut, context):
            if each.is_linked:
                found[-1] = _linked(found[-1], Source(columns), where)
            else:
                found.append(Source(columns))
    yield from found


def _columns_of(each: InputWords, cut: _Cut, context: SubmitContext) -> Iterator[tuple[tuple[Column, ...], str]]:
    """Of a mark: all its values are one source, and each of its files is one."""
    if not each.are_files:
        yield cut.columns(list(each.words), "inputs"), each.mark
        return
    for file in each.words:
        where = f"{each.mark} {file}"
        yield cut.columns(cut.values(file, context, each.mark), where), where


def _linked(before: Source, added: Source, where: str) -> Source:
    if len(before) != len(added):
        raise UserError(
            f"{where} has {len(added)} values to link with {len(before)}; give as many, one for each", field="inputs"
        )
    return Source((*before.columns, *added.columns))


def _of_json(lines: list[str], where: str) -> Source:
    """A column for each key of the first object; the line itself is what `{}` stands for."""
    names: list[str] = []
    rows: list[list[str]] = []
    for number, line in enumerate(lines, start=1):
        row = _object(line, f"{where}: line {number}")
        names = names or _names(list(row), where)
        if row.keys() != set(names):
            odd = sorted(row.keys() ^ set(names))[0]
            has = "has no" if odd in names else "has a further"
            raise UserError(f"{where}: line {number} {has} {odd!r:.80}; give each object the same keys")
        rows.append([row[name] for name in names])
    columns = (Column(Lines.of(row[index] for row in rows), name) for index, name in enumerate(names))
    return Source(tuple(columns), Lines.of(lines))


def _object(line: str, where: str) -> dict[str, str]:
    try:
        found = json.loads(line, parse_float=_Written, parse_int=_Written, parse_constant=_Written)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not found:
        raise UserError(f'{where}: it is no JSON object; write one on each line, as in {{"lr": 0.1}}')
    return {key: _text(value, f"{where}: {key!r:.80}") for key, value in found.items()}


class _Written(str):
    """A number as it stands in the file."""


def _text(value: Any, where: str) -> str:
    if value is None:
        return ""
    try:
        text = value if isinstance(value, str) else _json(value)
        text.encode()
    except UnicodeEncodeError as error:
        odd = f"\\u{ord(error.object[error.start]):04x}"
        raise UserError(f"{where} has {odd} without its other half, which is no character; leave it out") from None
    except RecursionError:
        raise UserError(f"{where} has too many lists and objects in each other; put it into a file") from None
    if "\0" in text:
        raise UserError(f"{where} has a NUL character, which no program can be given; leave it out")
    return str(text)


def _json(value: Any) -> str:
    """As `json.dumps`, but with numbers as they stand in the file: what Python makes of them may be another one."""
    match value:
        case _Written():
            return str(value)
        case list():
            return f"[{', '.join(map(_json, value))}]"
        case dict():
            return f"{{{', '.join(f'{_json(key)}: {_json(item)}' for key, item in value.items())}}}"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _names(words: list[str], where: str) -> list[str]:
    names = [word.strip() for word in words]
    for name in names:
        check_name(name, where)
    return names


def _columns(count: int) -> str:
    return f"{count} column{'' if count == 1 else 's'}"


def parse_colsep(text: str, path: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise UserError(f"{text!r} is no regular expression: {error}", field=path) from None
    if not text:
        raise UserError("it is empty; write what stands between two columns, such as , or '\\t'", field=path)
    return text
