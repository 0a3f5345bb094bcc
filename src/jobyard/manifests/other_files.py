"""Other files: which files are certainly no list of commands, and how are they run?"""

from __future__ import annotations

import os
import re

from jobyard.errors import UserError
from jobyard.quoting import quoted, quoted_file

_PROGRAMS = {
    ".py": "python {}",
    ".ipynb": "jupyter nbconvert --to notebook --execute {}",
    ".r": "Rscript {}",
    ".jl": "julia {}",
    ".pl": "perl {}",
    ".rb": "ruby {}",
    ".js": "node {}",
    ".mjs": "node {}",
    ".lua": "lua {}",
    ".php": "php {}",
    ".mk": "make -f {}",
    "makefile": "make -f {}",
    "gnumakefile": "make -f {}",
    "dockerfile": "",
}
_TABLES = frozenset({".csv", ".tsv"})
_SOURCES = frozenset({".c", ".cc", ".cpp", ".cu", ".f90", ".go", ".java", ".rs", ".scala", ".ts"})
_SHELLS = frozenset({".sh", ".bash", ".zsh", ".ksh", ".dash", ".csh", ".fish"})
_SBATCH = re.compile(r"^#SBATCH\s", re.MULTILINE)
_TO_LIST = "if each of its lines is a command, add --lines"


def command_for(file: str) -> str:
    """The words that run a file which does not say by itself what runs it."""
    return _run_by(file) or f"bash {quoted_file(file)}"


def _run_by(file: str) -> str:
    name, suffix = _name_and_suffix(file)
    return (_PROGRAMS.get(name) or _PROGRAMS.get(suffix) or "").format(quoted_file(file))


def _name_and_suffix(file: str) -> tuple[str, str]:
    name = os.path.basename(file).lower()
    return name, os.path.splitext(name)[1]


def refuse_other_file(text: str, file: str) -> None:
    """Raises UserError with the way to run it, where a name or the text says that lines are not commands."""
    name, suffix = _name_and_suffix(file)
    shown = quoted(file)  # an escape sequence in the name would take the rest of the sentence along
    if command := _run_by(file):
        raise UserError(f"{shown} is no list of commands; to run it write: yard run -- {command}")
    if name in _PROGRAMS:
        raise UserError(f"{shown} is no list of commands; to build its image write: yard build")
    if suffix in _TABLES:
        raise UserError(
            f"{shown} is a table and no list of commands; for a task per line of it write: "
            f"yard run --each-line {shown} -- CMD {{}}"
        )
    if suffix in _SOURCES:
        raise UserError(f"{shown} is source code; build it, and run the program: yard run -- ./PROGRAM; {_TO_LIST}")
    if _SBATCH.search(text):
        raise UserError(
            f"{shown} has #SBATCH lines, as a script for sbatch, but does not begin with #!; "
            f"begin it with #!/bin/bash to run it as one script; {_TO_LIST}"
        )
    if suffix in _SHELLS:
        raise UserError(
            f"{shown} has the name of a script, but does not begin with #!; with #!/bin/bash as its first line it runs "
            "as one task, and with --lines each of its lines is a task of its own"
        )
