"""Batch file: which job is a file with one bash command per line?

Blank lines and lines that begin with `#` are skipped. `#YARD --gpus 1 --mem 4G` sets for the whole file what the same
flags of `yard run` would; such lines may stand anywhere, count for every command, and flags override them.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.declarations import spellings
from jobyard.manifests.files import lines_of, name_from_file
from jobyard.manifests.inputs import CUTTING
from jobyard.manifests.job_fields import FLAGGED
from jobyard.manifests.overrides import Overrides, apply, merge
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.lines import Lines
from jobyard.quoting import quoted, quoted_file

FLAGS = {
    word: name for name, field in FLAGGED.items() if field.option is not None for word in spellings(name, field.option)
}
_DIRECTIVE = re.compile(r"\s*#YARD(?:\s+(.*))?$", re.DOTALL)
_COMMENT_OR_BLANK = re.compile(r"\s*(?:#|$)")
_PROGRAM = re.compile(r"^(?:bash|/\S*bash): (?:-c: )?line \d+: ")
_ENVIRONMENT_BYTES = 96 * 1024  # Linux takes 128 KiB of arguments and environment whatever the stack limit


def spec_from_batch(text: str, file: str, overrides: Overrides, context: SubmitContext) -> JobSpec:
    """One task per command, in file order. Raises UserError for a line that bash cannot read by itself."""
    numbered = physical_lines(text)
    directives = directives_of(text, file, context)
    if not numbered:
        raise UserError(f"{file}: no commands in it; write one bash command per line")
    _refuse_unreadable(numbered, file)
    spec = JobSpec(
        name=name_from_file(file),
        groups=(GroupSpec(Command(lines=Lines.of([line for _, line in numbered])), completions=len(numbered)),),
        workdir=context.workdir,
        submitter=context.submitter("batch"),
    )
    return apply(spec, merge(directives, overrides), context)


def physical_lines(text: str) -> list[tuple[int, str]]:
    """The commands, each with its line number in the file (from 1): task i is item i."""
    return [(number, line) for number, line in enumerate(lines_of(text), start=1) if not _COMMENT_OR_BLANK.match(line)]


def directives_of(text: str, file: str, context: SubmitContext) -> Overrides:
    """All `#YARD` lines together; of a flag given twice the later one counts, variables and dependencies add up."""
    said: dict[str, Any] = {}
    doubts: list[UserError] = []  # about a flag by itself: another one may be what it needs
    if "#YARD" not in text:
        return Overrides()
    for number, line in enumerate(lines_of(text), start=1):
        match = _DIRECTIVE.match(line)
        for flag, value in _flags(match[1] or "", f"{file}: line {number}") if match else ():
            name, meant = _meaning(flag, value)
            if problem := _problem({name: meant}, context):
                doubts.append(UserError(f"{file}: line {number}: {problem}"))
            said[name] = (*said.get(name, ()), *meant) if isinstance(meant, tuple) else meant
    if doubts and _problem(said, context):
        raise doubts[0]
    return Overrides(**said)


def _flags(text: str, where: str) -> Iterator[tuple[str, str]]:
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise UserError(f"{where}: cannot read the #YARD line: {str(error).lower()}") from None
    while words:
        flag, has_value, value = _cut(words.pop(0))
        if flag not in FLAGS:
            near = difflib.get_close_matches(flag, FLAGS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(FLAGS))}"
            raise UserError(f"{where}: unknown flag {flag!r} after #YARD; {hint}")
        if FLAGGED[FLAGS[flag]].is_switch:
            if has_value:
                raise UserError(f"{where}: {flag} takes no value; write {flag} alone")
        elif not has_value:
            if not words:
                raise UserError(f"{where}: {flag} needs a value; write {flag} VALUE")
            value = words.pop(0)
        yield flag, value


def _cut(word: str) -> tuple[str, bool, str]:
    """The flag in a word, and whether the word has its value too: `--cpus=4`, `-c4`."""
    if word[:1] == "-" and word[:2] != "--" and word[:2] in FLAGS:
        return word[:2], len(word) > 2, word[2:]
    flag, equals, value = word.partition("=")
    return flag, bool(equals), value


def _meaning(flag: str, value: str) -> tuple[str, Any]:
    """The field that a flag sets, and to what."""
    name = FLAGS[flag]
    field = FLAGGED[name]
    meant: Any = field.is_switch or value
    if field.option is not None and field.option.is_repeated:
        meant = (value,)
    return name, meant


def _problem(said: Mapping[str, Any], context: SubmitContext) -> str:
    """Why a job cannot have these flags; empty: it can."""
    # Paths are looked for later, and values to cut may come from the command line.
    later = {name for name in said if name.startswith("copy_")} | {*CUTTING, "skip_existing"}
    known = {name: meant for name, meant in said.items() if name not in later}
    try:
        trial = JobSpec("trial", (GroupSpec(Command(argv=("true",))),), workdir=context.workdir)
        apply(trial, Overrides(**known), replace(context, leave_out=()))
    except UserError as error:
        return str(error)
    return ""


def _refuse_unreadable(numbered: list[tuple[int, str]], file: str) -> None:
    bad = first_unreadable(dict.fromkeys(command for _, command in numbered))
    if bad is not None:
        number = next(number for number, command in numbered if command == bad)
        raise UserError(
            f"{quoted(file)}: line {number}: bash cannot read this line by itself: {_complaint(bad)}; "
            f"each line is a task of its own, to run the file as one script: yard run -- bash {quoted_file(file)}"
        )


def first_unreadable(commands: Iterable[str]) -> str | None:
    """The first command that is not complete for bash by itself; nothing is run.

    Exported functions are the one place where bash parses many texts in one process and executes none: it imports
    `BASH_FUNC_x%%=() { ... }` only where the text is exactly one function and all of it was read. A quote, loop,
    here-document or backslash that reaches over the end of the line swallows the closing brace and is not imported.
    Starting `bash -n` for each line takes 100 times longer.
    """
    found = (_first_unreadable(portion) for portion in _portions(commands))
    return next((bad for bad in found if bad is not None), None)


def _first_unreadable(portion: list[str]) -> str | None:
    if len(portion) == 1:
        return portion[0] if _bash_n(portion[0]) else None
    functions = {f"BASH_FUNC_f{index}%%": f"() {{ {line}\n}}" for index, line in enumerate(portion)}
    *imported, last = _bash(["-c", "declare -F; echo all"], "", functions).stdout.splitlines() or [""]
    if last == "all":
        names = {line.rpartition(" ")[2] for line in imported}
        return next((line for index, line in enumerate(portion) if f"f{index}" not in names), None)
    # Some errors, as in `echo $(ls`, end bash instead of one import: search the halves for the bad line.
    half = len(portion) // 2
    bad = _first_unreadable(portion[:half])
    return bad if bad is not None else _first_unreadable(portion[half:])


def _portions(commands: Iterable[str]) -> Iterator[list[str]]:
    """As many commands at a time as an environment holds; one that is too long for it stands alone."""
    portion: list[str] = []
    size = 0
    for command in commands:
        needs = 4 * len(command) + 48 if not command.isascii() else len(command) + 48
        if size + needs > _ENVIRONMENT_BYTES and portion:
            yield portion
            portion, size = [], 0
        portion.append(command)
        size += needs
    if portion:
        yield portion


def _bash_n(command: str) -> str:
    """The message of `bash -n` about one line, also for what it only warns about; empty if the line is complete."""
    trailing = len(command) - len(command.rstrip("\\"))
    checked = _bash(["-n"], command + "\n", {})
    said = checked.stderr.strip()
    if not said and trailing % 2:
        return "it ends in a backslash, which joins it to the next line"
    return said or ("syntax error" if checked.returncode else "")


def _complaint(command: str) -> str:
    said = _bash_n(command) or "it is not one complete command"
    return _PROGRAM.sub("", said.splitlines()[0]).removeprefix("warning: ")


def _bash(arguments: list[str], stdin: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", **variables}
    try:
        return subprocess.run(
            ["bash", "--norc", "--noprofile", *arguments],
            input=stdin,
            env=env,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        raise UserError("a batch file needs bash, which is not on PATH; install it") from None
