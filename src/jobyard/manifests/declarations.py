"""Field declaration: how is a field of a job written (flag, manifest key), and where in the JobSpec does it go?

The tables of `job_fields.py` are made of these. From them come the options of `yard run`, the flags after `#YARD`, the
keys of the native manifest, its JSON Schema and the page `docs/guide/job-fields.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jobyard.manifests.fields import Field, Flag
from jobyard.model.job import JobSpec
from jobyard.model.training import Training


@dataclass(frozen=True)
class Option:
    """The flag of a field. It is spelled as the field's name, with hyphens."""

    help: str
    metavar: str | None = None
    also: tuple[str, ...] = ()  # other spellings: -t
    name: str = ""  # where it is not the manifest's key: `mem` for `memory`
    is_repeated: bool = False
    parse: Callable[[Any, str], Any] | None = None  # where a flag is read otherwise than a manifest's value


@dataclass(frozen=True)
class JobField(Field):
    """Kind, description and default are those of the manifest; a field without an option is for manifests only."""

    at: str = ""  # its place in the JobSpec; empty: it depends on other fields, and a function works them out together
    option: Option | None = None
    is_key: bool = True  # False: for flags only

    @property
    def is_switch(self) -> bool:
        """Does its flag take no value?"""
        return isinstance(self.kind, Flag) and self.option is not None and self.option.parse is None

    def from_flag(self, value: Any, flag: str) -> Any:
        """What a flag's value means. Raises UserError that begins with the flag."""
        parse = self.option.parse if self.option is not None else None
        return parse(value, flag) if parse is not None else self.kind.from_flag(value, flag)


Table = Mapping[str, JobField]


def keys_of(table: Table) -> dict[str, JobField]:
    """The fields that a manifest may have, by their key."""
    return {key: field for key, field in table.items() if field.is_key}


def flags_of(*tables: Table) -> dict[str, JobField]:
    """The fields that have a flag, by its name with underscores."""
    found = (item for table in tables for item in table.items())
    return {field.option.name or key: field for key, field in found if field.option is not None}


def spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def spellings(name: str, option: Option) -> list[str]:
    """All of a flag, the short one first."""
    return sorted((spelled(name), *option.also), key=lambda word: word.startswith("--"))


def put(spec: JobSpec, at: str, value: Any) -> JobSpec:
    """The job with this value at its place: `name`, or `policy.retries`."""
    value = tuple(value) if isinstance(value, list) else value
    part, _, name = at.rpartition(".")
    if not part:
        return replace(spec, **{name: value})
    known = getattr(spec, part)
    if part == "training" and known is None:  # a word about a training says that it is one
        known = Training()
    return replace(spec, **{part: replace(known, **{name: value})})


def with_keys(spec: JobSpec, table: Table, given: Mapping[str, Any]) -> JobSpec:
    """The job with what a manifest says of the fields that have a place of their own."""
    for key, field in keys_of(table).items():
        if field.at and key in given:
            spec = put(spec, field.at, given[key])
    return spec
