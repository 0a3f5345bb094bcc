"""Doubts: what may a job ask for that was hardly meant? Each is a note; nothing is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobyard.errors import UserError
from jobyard.manifests.context import as_notes
from jobyard.manifests.declarations import JobField, spelled
from jobyard.model.job import Command, JobSpec
from jobyard.model.placeholders import Placeholders
from jobyard.model.units import show_seconds
from jobyard.quoting import quoted

_MARKS = frozenset({">", ">>", "<", "|", "&&", "||", ";"})
_READ_MARKS = frozenset({"test", "[", "expr", "find", "fd", "ssh", "parallel", "watch", "tr", "xargs"})
PLAIN_WORD = re.compile(r"[\w@%+=:,./{}-]+")  # bash would take such a word as it stands
_LINE_MOST = 160  # a longer line is not shown
_PERL = re.compile(r"\{=.*?=\}")
_CODE = re.compile(r"^-[ce]$|\s-[ce]\s|awk\b")  # whose braces are its own
_CONTEXT_MIB = 256  # of a GPU's memory; a process that uses CUDA takes about as much before it has allocated anything


def with_doubts(spec: JobSpec, *more: str) -> JobSpec:
    """The job with what the submitter should be told of it, and these sentences."""
    return told_of(spec, *_doubts(spec), *more)


def told_of(spec: JobSpec, *found: str) -> JobSpec:
    """The job with these notes, wherever it runs."""
    if not found:
        return spec
    said, on_cluster = spec.submitter.notes, spec.submitter.cluster_notes
    notes = as_notes((*said, *found))
    cluster_notes = None if on_cluster is None else as_notes((*on_cluster, *found))
    return replace(spec, submitter=replace(spec.submitter, notes=notes, cluster_notes=cluster_notes))


def _doubts(spec: JobSpec) -> Iterator[str]:
    for mib in sorted({group.resources.gpu_memory_mib for group in spec.groups}):
        if 0 < mib < _CONTEXT_MIB:
            yield f"{mib} MiB of a GPU's memory is very little; a number without a unit is MiB, write {mib}G for GiB"


def marks_of_shells(argv: Sequence[str]) -> Iterator[str]:
    """For the first word that only a shell would read: several words are run as they are given."""
    found = next((at for at, word in enumerate(argv) if word in _MARKS and _is_for_shell(argv, at)), None)
    if found is None:
        return
    line = " ".join(word if word in _MARKS else quoted(word) for word in argv)
    shown = f": {quoted(line)}" if len(line) <= _LINE_MOST else ""
    yield (
        f"{argv[found]!r} is given to {argv[0]:.40} as it stands: no shell reads several words; "
        f"quote the whole command as one word{shown}"
    )


def _is_for_shell(argv: Sequence[str], at: int) -> bool:
    """Not where the program itself may read the mark: `test a '<' b`, `cut -d '|'`, `find -exec rm {} ';'`."""
    if at == 0 or os.path.basename(argv[0]) in _READ_MARKS:
        return False
    if argv[at] in (";", "|", "<") and (argv[at - 1].startswith("-") or at == 1):
        return False
    return not any(word in ("-exec", "-execdir", "-ok") for word in argv[:at])


def unnamed(command: Command, known: Placeholders) -> Iterator[str]:
    """For what looks like a column where none has a name. Raises UserError for parallel's Perl."""
    texts = (command.shell, *command.argv)
    has_code = any(_CODE.search(text) for text in texts)
    if not has_code and (perl := next((match[0] for text in texts for match in _PERL.finditer(text)), "")):
        raise UserError(
            f"{perl:.40} is Perl, which is not run; write {{.}}, {{/}}, {{//}} or {{/.}}, "
            """or let bash cut the value, as in 'x={}; echo "${x/a/b}"'""",
            field="command",
        )
    if not has_code and (names := [name for text in texts for name in known.nameless(text)]):
        yield f"{names[0]:.40} stays as it is: no column has a name; --header gives them theirs, and so does --sweep"


def bare_times(said: Mapping[str, Any], fields: Mapping[str, JobField]) -> Iterator[str]:
    """For each of these flags whose time is a number without a unit: Slurm's `--time 90` is minutes, ours seconds."""
    for name in fields:
        text = str(said.get(name) or "")
        if text.isascii() and text.isdigit():
            seconds = fields[name].from_flag(text, spelled(name))
            yield f"{spelled(name)} {text} is {text} seconds ({show_seconds(seconds)}); write {text}m for minutes"
