"""YAML and JSON documents: what does a file say, and on which line?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import yaml

from jobyard.errors import UserError
from jobyard.manifests.parts import Part
from jobyard.yaml_text import UnreadableYaml, nodes_of

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")  # as JSON writes them; YAML 1.1 takes 1e3 for text
_SORTS: dict[str, Literal["text", "whole", "number", "flag", "null"]] = {
    "tag:yaml.org,2002:int": "whole",
    "tag:yaml.org,2002:float": "number",
    "tag:yaml.org,2002:bool": "flag",
    "tag:yaml.org,2002:null": "null",
}


def parse_documents(text: str, file: str) -> list[Part]:
    """All documents of a file, in order. Raises UserError with line and column where it is not YAML."""
    if text.lstrip().startswith(("{", "[")):
        text = text.replace("\t", " ")  # JSON may be indented with tabs, inside its strings they are not allowed
    try:
        nodes = nodes_of(text)
    except UnreadableYaml as error:
        raise UserError(f"{file}: {error}") from None
    return [_Reader(file).part(node, node.start_mark.line + 1) for node in nodes]


class _Reader:
    """One document's nodes as parts. An anchor's part is made once, however often it is used."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._done: dict[int, Part] = {}

    def part(self, node: yaml.Node, line: int) -> Part:
        done = self._done.get(id(node))
        if done is not None:
            return Part(done.value, done.sort, self._file, line)
        match node:
            case yaml.MappingNode():
                part = Part(self._mapping(node), "map", self._file, line)
            case yaml.SequenceNode():
                items = [self.part(item, item.start_mark.line + 1) for item in node.value]
                part = Part(items, "list", self._file, line)
            case _:
                part = self._scalar(node, line)
        self._done[id(node)] = part
        return part

    def _scalar(self, node: yaml.Node, line: int) -> Part:
        sort = _SORTS.get(node.tag, "text")
        text = str(node.value)
        if sort == "text" and getattr(node, "style", None) is None and _NUMBER.fullmatch(text):
            sort = "number"
        if any("\ud800" <= character <= "\udfff" for character in text):
            try:  # JSON writes characters beyond 16 bits as two escapes
                text = text.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError:
                raise UserError(f"{self._file}: line {line}: half of a character in {text!r}; write it out") from None
        return Part(text, sort, self._file, line)

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Part]:
        own: dict[str, Part] = {}
        merged: dict[str, Part] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == "tag:yaml.org,2002:merge":
                for name, part in self._merged(value, line):
                    merged.setdefault(name, part)
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise UserError(f"{self._file}: line {line}: a key must be a plain word, not a list or a mapping")
            if key.value in own:
                first = own[key.value].line
                raise UserError(f"{self._file}: line {line}: key {key.value!r} stands twice (first on line {first})")
            own[key.value] = self.part(value, line)
        return {**merged, **own}

    def _merged(self, value: yaml.Node, line: int) -> Iterator[tuple[str, Part]]:
        sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                raise UserError(f"{self._file}: line {line}: '<<' needs a mapping to merge, as in <<: *name")
            part = self.part(source, line)
            assert isinstance(part.value, dict)
            yield from part.value.items()
