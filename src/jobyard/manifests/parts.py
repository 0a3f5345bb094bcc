"""Part of a document: what is one value of a manifest, and on which line does it stand? Known without a YAML parser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jobyard.errors import UserError


@dataclass(frozen=True, slots=True)
class Part:
    """One value of a document. A scalar keeps its text as written: `02:30` is not 150, and the key `on` is not True."""

    value: str | list[Part] | dict[str, Part]
    sort: Literal["text", "whole", "number", "flag", "null", "list", "map"]
    file: str
    line: int

    def error(self, path: str, message: str) -> UserError:
        return UserError(f"{self.file}: line {self.line}: {path}: {message}")

    def get(self, key: str) -> Part | None:
        return self.value.get(key) if isinstance(self.value, dict) else None

    def text_of(self, key: str) -> str:
        """The text of a scalar under `key`, or nothing."""
        part = self.get(key)
        return part.value if part is not None and isinstance(part.value, str) and part.sort != "null" else ""

    def at(self, *keys: str) -> Part:
        """The part under these keys, or the nearest existing one above it: for messages."""
        part = self
        for key in keys:
            part = part.get(key) or part
        return part

    @property
    def shown(self) -> str:
        match self.value:
            case str() if self.sort == "text":
                return f"the text {self.value!r}"
            case str():
                return self.value or "nothing"
            case list():
                return "a list"
            case _:
                return "a mapping"
