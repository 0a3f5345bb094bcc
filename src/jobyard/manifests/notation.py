"""Notation: how are a job's name, place, image, volumes, variables, paths and dependencies written down?"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.parts import Part
from jobyard.model.environment import YARD_NAMES
from jobyard.model.job import Dependency
from jobyard.model.kubernetes import Volume
from jobyard.model.limits import TaskLimit, range_of
from jobyard.model.output_pattern import DISCARD, check_pattern
from jobyard.model.selectors import other_meaning
from jobyard.model.units import parse_size_mib, whole_number

RESERVED_NAMES = YARD_NAMES  # with them a task could report as another one

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_PREFIX = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")  # a label of RFC 1035
PREFIX_MOST = 20


def parse_copied(text: str, workdir: str, field: str, *, must_exist: bool = True) -> str:
    """A path inside the working directory, relative to it; `.` is all of it. Links are not followed."""
    path = os.path.normpath(os.path.join(workdir, os.path.expanduser(text)))
    inside = os.path.relpath(path, workdir or ".")
    if os.path.isabs(text) and inside.startswith(
        ".."
    ):  # an absolute path, while the working directory was reached through a link
        inside = os.path.relpath(path, os.path.realpath(workdir or "."))
    if not text or "\0" in text or inside == ".." or inside.startswith("../"):
        raise UserError(f"{text!r} is not inside the working directory {workdir}; name a path below it", field=field)
    if must_exist and not os.path.lexists(path):
        raise UserError(f"{text!r} does not exist; create it or name another (looked for {path})", field=field)
    return inside


def parse_output(text: str, context: SubmitContext, field: str) -> str:
    """A pattern for the file of each task's output; a relative one starts at the submit directory."""
    pattern = os.path.join(context.workdir, os.path.expanduser(text))
    if not text or "\0" in text:
        raise UserError(f"{text!r} names no file; write one as in logs/%j_%t.out", field=field)
    if pattern == DISCARD:
        return pattern
    check_pattern(pattern, field, 1)
    there = pattern.partition("%")[0].rpartition("/")[0] or "/"
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{text!r} cannot be written: {there} is no directory of yours; name another", field=field)
    return pattern


def copied_paths(texts: Iterable[str], workdir: str, field: str, *, must_exist: bool) -> tuple[str, ...]:
    return tuple(parse_copied(text, workdir, field, must_exist=must_exist) for text in texts)


def parse_on(text: str, field: str) -> str:
    """Nodes, labels or executors, with commas between. Whether they exist is for the yard to say."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UserError(
            f"a name is missing in {text!r}; write a node, a label or an executor, as in gpu1,gpu2", field=field
        )
    return ",".join(dict.fromkeys(names))


def parse_limit(text: str, field: str) -> int:
    """How many tasks may run at once. Shares and sums, as GNU parallel has them, are of the cores of one machine."""
    text = str(text).strip()
    number = whole_number(text)
    least, most = range_of(TaskLimit).least, range_of(TaskLimit).most
    if number is not None and least <= number <= most:
        return number
    if number == 0:
        raise UserError(
            "0 would run nothing; leave it out: as many tasks run as there is room for by --cpus", field=field
        )
    if re.fullmatch(r"[+-]\d+%?|\d+%", text):
        raise UserError(
            f"{text} is of the cores of one machine; write how many, or leave it out: "
            "as many tasks run as there is room for by --cpus",
            field=field,
        )
    raise UserError(f"{text!r:.80} is not a whole number from {least:.0f} to {most:.0f}", field=field)


def parse_image(text: str, field: str) -> str:
    """A container image's name; whether there is one is for the cluster to say."""
    if not text or not text.isprintable() or any(character.isspace() for character in text):
        raise UserError(f"{text!r} is not an image; write one as in registry.lab/team/train:1", field=field)
    return text


def parse_volume(text: str, field: str) -> Volume:
    """`CLAIM:PATH`, or `CLAIM:PATH:ro` for reading only."""
    claim, _, rest = text.partition(":")
    path, _, mode = rest.partition(":")
    if not _CLAIM.fullmatch(claim) or not path.startswith("/") or mode not in ("", "ro", "rw"):
        raise UserError(
            f"{text!r} is not a volume; write CLAIM:PATH or CLAIM:PATH:ro, with the name of a "
            "PersistentVolumeClaim and an absolute path",
            field=field,
        )
    return Volume(claim, path, read_only=mode == "ro")


def parse_name(text: str, field: str) -> str:
    """A job's name: any printable text up to 200 characters; a slash would read as a task's address."""
    name = text.strip()
    if not name or len(name) > 200 or "/" in name or not name.isprintable():
        raise UserError(f"{text!r} is not a name; write 1 to 200 printable characters without a slash", field=field)
    if meaning := other_meaning(name):
        raise UserError(f"{text!r} {meaning}; choose another name", field=field)
    return name


def parse_prefix(text: str, field: str) -> str:
    """What begins the name of a job and of its objects."""
    if not _PREFIX.fullmatch(text) or len(text) > PREFIX_MOST:
        raise UserError(
            f"{text!r} cannot begin a name; write up to {PREFIX_MOST} of a-z, 0-9 and -, a letter first", field=field
        )
    return text


def parse_workdir(text: str, context: SubmitContext, field: str) -> str:
    """An absolute path of a directory that exists; a relative one starts at the submit directory."""
    path = os.path.normpath(os.path.join(context.workdir, os.path.expanduser(text)))
    if not text or "\0" in text or not os.path.isdir(path):
        raise UserError(f"{text!r} is not a directory; create it or name another (looked for {path})", field=field)
    return path


def parse_env(entries: tuple[str, ...], environ: Mapping[str, str], field: str = "--env") -> dict[str, str]:
    """`K=V` as written; `K` alone takes the submitting shell's value. The last one of a name wins."""
    env: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        check_variable(name, field)
        if not equals:
            if name not in environ:
                raise UserError(f"{name} is not set in this shell; write {name}=VALUE or export it first", field=field)
            value = environ[name]
        env[name] = value
    return env


def env_of(document: Part, at: Sequence[str], env: Mapping[str, str | None], context: SubmitContext) -> dict[str, str]:
    """The variables that a manifest has under these keys; one without a value has that of the submitting shell."""
    found, path = {}, ".".join(at)
    for name, value in env.items():
        part = document.at(*at, name)
        try:
            check_variable(name, path)
        except UserError as error:
            raise UserError(f"{part.file}: line {part.line}: {error}") from None
        if value is None and name not in context.environ:
            raise part.error(f"{path}.{name}", f"is not set in this shell; write {name}: VALUE, or export it first")
        found[name] = context.environ[name] if value is None else value
    return found


def check_variable(name: str, field: str) -> None:
    if not _VARIABLE.fullmatch(name):
        raise UserError(f"{name!r} is not a variable's name; write letters, digits and _, as in SEED=42", field=field)
    if name in RESERVED_NAMES:
        raise UserError(f"{name} is set by the yard itself; choose another name", field=field)


def parse_after(texts: tuple[str, ...], field: str = "--after") -> tuple[Dependency, ...]:
    """`ID` and `afterok:ID` wait for success, `afterany:ID` for any end; Slurm's `afterok:1:2,afterany:3` too."""
    dependencies = []
    for text in texts:
        for part in text.split(","):
            kind, colon, rest = part.strip().partition(":")
            if not colon:
                kind, rest = "afterok", kind
            if kind not in ("afterok", "afterany"):
                raise UserError(f"unknown kind {kind!r} in {text!r}; write ID, afterok:ID or afterany:ID", field=field)
            for job in rest.split(":"):
                if not job.strip():
                    raise UserError(f"no job is named in {text!r}; write ID, afterok:ID or afterany:ID", field=field)
                dependencies.append(Dependency(job.strip(), needs_success=kind == "afterok"))
    return tuple(dependencies)


def parse_switch(text: str, field: str) -> bool:
    if text not in ("on", "off"):
        raise UserError(f"{text!r} is neither on nor off; write one of them", field=field)
    return text == "on"


def parse_device_mib(text: str, field: str) -> int:
    """GiB without a unit, as data sheets have it; or with one."""
    mib = parse_size_mib(f"{text}GiB" if whole_number(str(text)) is not None else text, field, "GiB")
    if mib < 1:
        raise UserError(f"{text!r} is no memory of a GPU; write GiB, as in 40", field=field)
    return mib
