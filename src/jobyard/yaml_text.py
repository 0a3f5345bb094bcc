"""YAML text: how is it parsed safely? This is the one place, and it refuses text that would grow enormously (aliases).

Ten lines of aliases that stand for lists of aliases mean a billion values. Code that walks them never ends, so the size
of what the text means is measured before anything walks it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from jobyard.errors import UserError

TEXT_MOST = 16 << 20  # characters: etcd takes objects of 1.5 MB, and a batch of 100,000 lines has about 10 MB
FILE_MOST = 1 << 20  # of what libraries read, kubeconfigs: one with 200 clusters has about 500 KB
DEPTH_MOST = 100  # levels: real manifests have about 15, and PyYAML's recursion ends near 300
GROWTH_MOST = 4 << 20  # characters that aliases may add to what is written: some 250,000 values
VALUE_WEIGHT = 16  # characters that a value counts beside its text, or a million empty ones would weigh nothing


class UnreadableYaml(UserError):
    """Not YAML, or YAML that we refuse. It has the code of its parent: it never crosses the wire."""


class _Loader(yaml.SafeLoader):
    """Limits the depth of nesting: PyYAML itself does not."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > DEPTH_MOST:
            raise _too_deep(self.line + 1)
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def nodes_of(text: str, most: int = TEXT_MOST) -> list[yaml.Node]:
    """The documents of a text that are not empty, as trees in which an alias is the node it stands for.

    A walk over them, aliases included, meets at most `GROWTH_MOST` more than is written. Raises UnreadableYaml.
    """
    if len(text) > most:
        raise UnreadableYaml(f"too long to be read as YAML; at most {most >> 20} MiB are taken")
    try:
        found = [node for node in yaml.compose_all(text, Loader=_Loader) if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        hint = "; indent with blanks" if "'\\t'" in str(error.problem) else ""
        raise UnreadableYaml(f"{where}not valid YAML: {error.problem or error.context}{hint}") from None
    except yaml.YAMLError as error:
        position = getattr(error, "position", None)
        where = f"line {text.count(chr(10), 0, position) + 1}: " if isinstance(position, int) else ""
        raise UnreadableYaml(f"{where}not valid YAML: {getattr(error, 'reason', error)}") from None
    for node in found:
        _Measure().check(node)
    return found


def value_of(text: str) -> Any:
    """The one document of a text as plain Python values; None where there is none. Raises UnreadableYaml."""
    nodes = nodes_of(text)
    if len(nodes) > 1:
        line = nodes[1].start_mark.line + 1
        raise UnreadableYaml(f"line {line}: a second document; write one document per file")
    if not nodes:
        return None
    try:
        return _Loader("").construct_document(nodes[0])
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none, as 2024-13-45
        raise UnreadableYaml(f"not valid YAML: {getattr(error, 'problem', None) or error}") from None


def check_files(paths: Iterable[str]) -> None:
    """Look at files that a library will read by itself; a missing one is reported by the library.

    Raises UnreadableYaml with the name of the file.
    """
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                nodes_of(file.read(FILE_MOST + 1), FILE_MOST)
        except OSError:
            continue
        except UnreadableYaml as error:
            raise UnreadableYaml(f"{path}: {error}") from None


class _Measure:
    """The size of a document with its aliases expanded, against its own size. Each node is visited once."""

    def __init__(self) -> None:
        self._whole: dict[int, tuple[int, int]] = {}  # by node: its weight and its height, aliases written out
        self._open: set[int] = set()
        self._written = 0

    def check(self, document: yaml.Node) -> None:
        whole, height = self._weigh(document)
        if height > DEPTH_MOST:
            raise _too_deep(document.start_mark.line + 1)
        growth = whole - self._written
        if growth > GROWTH_MOST:
            raise UnreadableYaml(
                f"its aliases (*name) stand for too much: at most {GROWTH_MOST >> 20} MiB more than is written"
                " are taken; write the values out where they are needed"
            )

    def _weigh(self, node: yaml.Node) -> tuple[int, int]:
        if id(node) in self._whole:
            return self._whole[id(node)]
        if id(node) in self._open:
            line = node.start_mark.line + 1
            raise UnreadableYaml(f"line {line}: an anchor that contains itself; write the value out")
        self._open.add(id(node))
        match node:
            case yaml.MappingNode():
                inside = [self._weigh(each) for pair in node.value for each in pair]
                own = VALUE_WEIGHT
            case yaml.SequenceNode():
                inside = [self._weigh(each) for each in node.value]
                own = VALUE_WEIGHT
            case _:
                inside = []
                own = VALUE_WEIGHT + len(str(node.value))
        self._open.discard(id(node))
        self._written += own
        whole = own + sum(weight for weight, _ in inside), 1 + max((height for _, height in inside), default=0)
        self._whole[id(node)] = whole
        return whole


def _too_deep(line: int) -> UnreadableYaml:
    return UnreadableYaml(f"line {line}: nested too deeply to be read; at most {DEPTH_MOST} levels are taken")
