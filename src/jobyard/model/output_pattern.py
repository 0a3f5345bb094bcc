"""Output pattern: which file does `logs/%j_%t.out` mean for one task? The patterns are Slurm's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from posixpath import normpath
from typing import NamedTuple

from jobyard.errors import UserError
from jobyard.model.job import JobSpec

DISCARD = "/dev/null"
_PART = re.compile(r"%(\d{0,2})(.?)", re.DOTALL)
_OF_ONE_TASK = frozenset("at")  # only these differ from task to task, whatever the job
_MAY_BE_LONG = frozenset("xNu")  # and are the same for all tasks of a node
_NAME_BYTES_MOST = 255  # of one name in a path, on Linux


class TaskOutput(NamedTuple):
    """What a pattern may name of a task and its job."""

    job: int
    task: str  # as `yard show --tasks` names it
    name: str
    node: str
    user: str


_MEANINGS: Mapping[str, Callable[[TaskOutput], str]] = {
    "j": lambda names: str(names.job),
    "A": lambda names: str(names.job),
    "a": lambda names: names.task,
    "t": lambda names: names.task,
    "x": lambda names: names.name,
    "N": lambda names: names.node,
    "u": lambda names: names.user,
    "%": lambda names: "%",
}
_SOME_JOB, _SOME_NODE = 10**18, "\1"  # that nobody writes into a pattern
KNOWN = "%j the job's number, %t or %a the task, %x the job's name, %N the node, %u the user, %% a percent sign"


def check_pattern(pattern: str, field: str, tasks: int) -> None:
    """Raises UserError where it can be no path, or would be the same one for several tasks."""
    if pattern == DISCARD:
        return
    letters = [match[2] for match in _PART.finditer(pattern)]
    if unknown := [letter for letter in letters if letter not in _MEANINGS]:
        raise UserError(f"%{unknown[0]} has no meaning in {pattern!r:.80}; known: {KNOWN}", field=field)
    if not pattern or pattern.endswith("/"):
        raise UserError(f"{pattern!r:.80} names no file; write one as in logs/%j_%t.out", field=field)
    if tasks > 1 and _OF_ONE_TASK.isdisjoint(match[2] for match in _PART.finditer(normpath(pattern))):
        raise UserError(f"all {tasks} tasks would write {pattern!r:.80}; put %t, the task, into it", field=field)
    if (longest := max(len(_bytes(_PART.sub("", part))) for part in pattern.split("/"))) > _NAME_BYTES_MOST:
        what = f"a name of {longest} bytes in {pattern!r:.80}"
        raise UserError(f"{what}; a file has at most {_NAME_BYTES_MOST}, write a shorter one", field=field)


def check_apart(spec: JobSpec, field: str) -> None:
    """Raises UserError where both streams of a task would be one file by two names: one would replace the other."""
    patterns = spec.staging.output, spec.staging.error
    if "" in patterns or DISCARD in patterns or not spec.size:
        return
    for number in (0, spec.size - 1):  # `%2t` and `%t` differ below 10 only
        names = TaskOutput(_SOME_JOB, spec.label_of(number), spec.name, _SOME_NODE, spec.submitter.user)
        output, error = (normpath(expand(pattern, names)) for pattern in patterns)
        if output.lstrip("/") == error.lstrip("/"):
            both = "one file for both streams is what output alone means"
            raise UserError(
                f"{patterns[1]!r:.80} is the file of output by another name; leave it out: {both}", field=field
            )


def names_node(pattern: str) -> bool:
    return any(match[2] == "N" for match in _PART.finditer(pattern))


def expand(pattern: str, names: TaskOutput) -> str:
    """The file for this task. What stands for a pattern never leads to another directory: its slashes become `_`."""
    return "/".join(_expanded(part, names) for part in pattern.split("/"))


def _expanded(part: str, names: TaskOutput) -> str:
    """One name of the path. Where it is too long, names of jobs, nodes and users in it are cut, and nothing else."""
    found = _filled(part, names, _NAME_BYTES_MOST)
    if len(_bytes(found)) > _NAME_BYTES_MOST:
        room = _NAME_BYTES_MOST - len(_bytes(_filled(part, names, 0)))
        share = room // max(1, sum(match[2] in _MAY_BE_LONG for match in _PART.finditer(part)))
        found = _filled(part, names, max(0, share))
    is_a_way = found in ("", ".", "..") and found != part
    return "_" * max(1, len(found)) if is_a_way else found


def _filled(part: str, names: TaskOutput, most_bytes: int) -> str:
    """`%4t` fills a number up with zeros. What may be long has at most so many bytes."""

    def meaning(match: re.Match[str]) -> str:
        text = _MEANINGS[match[2]](names).replace("/", "_").replace("\0", "_")
        text = text.zfill(int(match[1])) if match[1] and text.isdigit() else text
        is_cut = match[2] in _MAY_BE_LONG and len(_bytes(text)) > most_bytes
        return _bytes(text)[:most_bytes].decode("utf-8", "ignore") if is_cut else text

    return _PART.sub(meaning, part)


def _bytes(text: str) -> bytes:
    """As it is a name on a disk, which need not be UTF-8."""
    return text.encode("utf-8", "surrogateescape")
