"""Call file: how do a function and its arguments come to the tasks of a job? As one file of the working directory.

It goes where the tree goes, so nothing has to be installed on another machine; and no server reads it. It is the
arguments, then an archive with the rest, which the tasks' Python runs (`call_command.py`). Hashes say that none of it
was changed: of each block of arguments in the archive, and of the archive in the job's command, as its seal.
"""

from __future__ import annotations

import hashlib
import json
import os
import py_compile
import re
import secrets
import sys
import tempfile
import time
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import cloudpickle

from jobyard.errors import UserError
from jobyard.python_api import in_task
from jobyard.python_api.call_folder import FOLDER, existing_file, made, new_file, opened
from jobyard.python_api.pickling import ARGUMENTS_BYTES_MOST, RESULT_BYTES_MOST

_UNUSED_SECONDS = 3600.0  # a file younger than that may belong to a job that is being submitted
_LOOKED_AT_MOST = 20  # at each submit: each costs a question to the server
_BLOCK = 256 << 10  # bytes that a task reads and checks at once: small beside what starting Python costs
_END_BYTES = 8  # the last of a file: where its archive begins
_HEAD_BYTES = 1 << 20  # of the line with the places of the archive's members
_OWNER_BYTES = 4096  # of the file that names a job


@dataclass(frozen=True)
class Calls:
    """A function and what it is called with, pickled. A task makes `chunk` calls, one after another."""

    function: bytes
    arguments: Iterable[bytes]
    chunk: int = 1
    python: str = ""  # the interpreter of the tasks; empty: this one where it is there, else one of the same version


@dataclass(frozen=True)
class CallFile:
    """A file that was written, and how many calls are in it."""

    path: Path
    count: int
    chunk: int
    seal: str = field(default="", compare=False)  # where its archive begins, and its hash; empty: it was read again

    @property
    def tasks(self) -> int:
        return -(-self.count // self.chunk)

    def belongs_to(self, yard: str, job: str) -> None:
        name = job_of(self.path).name
        with suppress(OSError, UserError), opened(self.path.parent) as folder, new_file(folder, name) as file:
            file.write(f"{yard} {job}\n".encode())

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def job_of(path: Path) -> Path:
    """The file that says which job of which yard a call file belongs to."""
    return path.with_suffix(".job")


def delete_forgotten(workdir: Path, yard: str, is_known: Callable[[str], bool]) -> None:
    """Remove files of jobs that this yard has let go, and of none. Those of other yards stay: their tasks run them."""
    with suppress(OSError, UserError), opened(workdir / FOLDER) as folder:
        before = time.time() - _UNUSED_SECONDS
        names = [name for name in os.listdir(folder) if name.endswith(".call") and _changed(folder, name) < before]
        for name in sorted(names, key=lambda name: _looked_at(folder, name))[:_LOOKED_AT_MOST]:
            owner = str(job_of(Path(name)))
            if _is_needed(folder, owner, yard, is_known):
                os.utime(owner, dir_fd=folder, follow_symlinks=False)  # who comes next looks at others first
            else:
                for each in (name, owner):
                    with suppress(FileNotFoundError):
                        os.unlink(each, dir_fd=folder)


def _changed(folder: int, name: str) -> float:
    return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime


def _looked_at(folder: int, name: str) -> float:
    try:
        return _changed(folder, str(job_of(Path(name))))
    except FileNotFoundError:
        return _changed(folder, name)


def _is_needed(folder: int, owner: str, yard: str, is_known: Callable[[str], bool]) -> bool:
    """A file without an owner was never submitted."""
    try:
        with existing_file(owner, folder) as file:
            its_yard, _, job = file.read(_OWNER_BYTES).decode(errors="replace").strip().partition(" ")
    except FileNotFoundError:
        return False
    except OSError:  # something else has its name: not ours to judge
        return True
    return its_yard != yard or is_known(job)


def write(calls: Calls, workdir: Path, name: str) -> CallFile:
    """`name` is for people: the tasks' command has it. Raises UserError, and then nothing is left."""
    folder = workdir / FOLDER
    path = folder / f"{_plain(name)}-{secrets.token_hex(6)}.call"
    try:
        with made(workdir) as descriptor, new_file(descriptor, path.name) as file:
            written = _write_arguments(file, calls.arguments)
            archive_at = file.tell()
            about = {**_about(calls, workdir), **asdict(written), "archive_at": archive_at, "block": _BLOCK}
            packed = _packed(calls.function, about, _hashes(file), archive_at)
            file.write(packed)
    except BaseException as error:
        with suppress(OSError):
            path.unlink()
        if isinstance(error, OSError):
            why = f"the function cannot be written there ({error.strerror}); name another directory with workdir="
            raise UserError(f"{folder}: {why}") from None
        raise
    return CallFile(path, written.count, calls.chunk, f"{archive_at}-{hashlib.sha256(packed).hexdigest()}")


def _packed(function: bytes, about: dict[str, Any], hashes: bytes, at: int) -> bytes:
    """A line of JSON with the place of each member, and the members. No zip: its module takes 7 ms of each task."""
    places: dict[str, tuple[int, int]] = {}
    body = b""
    given = {"about.json": json.dumps(about).encode(), "hashes": hashes, "function.pickle": function}
    for name, content in (*given.items(), *_programs()):
        compressed = zlib.compress(content, 1)
        places[name] = (len(body), len(compressed))
        body += compressed
    return json.dumps(places).encode() + b"\n" + body + at.to_bytes(_END_BYTES, "big")


def _hashes(file: BinaryIO) -> bytes:
    """Of each block so far. Leaves the file at its end."""
    file.seek(0)
    return b"".join(hashlib.sha256(block).digest() for block in iter(lambda: file.read(_BLOCK), b""))


def _plain(name: str) -> str:
    """As a word of a command that needs no quotes, and never begins with a dash."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)[:40]


def read_counts(path: Path) -> CallFile:
    """How many calls an existing file has. Raises UserError where it is gone."""
    try:
        with existing_file(path) as file:
            file.seek(-_END_BYTES, os.SEEK_END)
            file.seek(int.from_bytes(file.read(), "big"))
            head = json.loads(file.readline(_HEAD_BYTES))
            at, size = head["about.json"]
            file.seek(at, os.SEEK_CUR)
            about = json.loads(zlib.decompress(file.read(size)))
    except (OSError, OverflowError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise UserError(f"{path}: the file with the job's arguments cannot be read ({error})") from None
    return CallFile(path, about["count"], about["chunk"])


@dataclass(frozen=True)
class _Written:
    """Where in the file the arguments begin, and where the list of their ends."""

    count: int
    arguments_at: int
    index_at: int


def _write_arguments(file: BinaryIO, arguments: Iterable[bytes]) -> _Written:
    """Raises UserError where they are more than a file may have."""
    begin, ends = file.tell(), array("Q", [0])
    for pickled in arguments:
        file.write(pickled)
        ends.append(ends[-1] + len(pickled))
        if ends[-1] > ARGUMENTS_BYTES_MOST:
            raise UserError(
                f"the arguments have more than {ARGUMENTS_BYTES_MOST >> 20} MiB pickled; "
                "write them to files in the working directory, and pass the files' names"
            )
    index_at = file.tell()
    file.write(ends.tobytes())
    return _Written(len(ends) - 1, begin, index_at)


def _about(calls: Calls, workdir: Path) -> dict[str, Any]:
    return {
        "python": list(sys.version_info[:2]),
        "chunk": calls.chunk,
        "paths": list(_paths(workdir)),
        "result_limit": RESULT_BYTES_MOST,
    }


def _programs() -> Iterator[tuple[str, bytes]]:
    """What runs in the task, and cloudpickle, compiled: from an archive Python would compile it in each task."""
    yield "__main__.py", Path(in_task.__file__).read_bytes()
    assert cloudpickle.__file__ is not None
    with tempfile.TemporaryDirectory() as scratch:
        for source in sorted(Path(cloudpickle.__file__).parent.glob("*.py")):
            compiled = py_compile.compile(
                str(source),
                os.path.join(scratch, source.stem),
                dfile=f"cloudpickle/{source.name}",
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
            assert compiled is not None
            yield f"cloudpickle/{source.stem}.pyc", Path(compiled).read_bytes()


def _paths(workdir: Path) -> Iterator[str]:
    """Where this program finds its own modules: below the working directory as they travel, others as they are."""
    top = os.path.realpath(workdir)
    installed = tuple({os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix)})
    for path in sys.path:
        place = os.path.realpath(path or os.curdir)
        if place == top or place.startswith(top + os.sep):
            if not any(place.startswith(prefix + os.sep) for prefix in installed):
                yield os.path.relpath(place, top)
        elif os.path.isdir(place) and not any(place.startswith(prefix + os.sep) for prefix in installed):
            yield place
