"""Mirror: where are files of attempts on other machines kept here? In the layout of their agents."""

from __future__ import annotations

import base64
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from jobyard.agent_protocol import packs, records
from jobyard.agent_protocol.packing import pack
from jobyard.model.task import AttemptId

log = logging.getLogger(__name__)
STREAMS = ("out", "err", "results")


class Mirror:
    """One for all remote nodes: attempt ids are unique. What is here was received in order and without a gap."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._marks = directory / "placed"
        self._lock = threading.Lock()
        self._pack_lock = threading.Lock()
        self._marked = self._read_marks()
        self._told: set[AttemptId] = set()

    def path(self, attempt: AttemptId, stream: str) -> Path:
        paths = records.paths(str(self.directory), str(attempt))
        return Path({"out": paths.out, "err": paths.err, "results": paths.results}[stream])

    def jobs(self) -> list[str]:
        """Those of which anything is here. Reads a directory: call it in a thread."""
        return _names(self.directory / "jobs")

    def forget(self, jobs: Iterable[str]) -> None:
        """Delete all that is here of them, and what an earlier call had begun to delete. Call it in a thread."""
        trash = self.directory / "trash"
        for job in jobs:
            trash.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                (self.directory / "jobs" / job).rename(trash / f"{job}.{time.monotonic_ns()}")
        for name in _names(trash):
            shutil.rmtree(trash / name, ignore_errors=True)

    def pack(self, jobs: Iterable[str], has_ended: Callable[[str], bool]) -> None:
        """Pack the small output of jobs that have ended, and still have when it is their turn. Call it in a thread."""
        for job in jobs:
            with self._pack_lock:
                if has_ended(job):
                    directory = self.directory / "jobs" / job
                    for keys in _written(directory):
                        pack(str(directory), keys, ("out", "err"))

    def unpack(self, attempt: AttemptId) -> None:
        """Have its files where they were, before somebody compares them with others. What is damaged stays away."""
        with self._pack_lock:
            for stream in ("out", "err"):
                path = self.path(attempt, stream)
                try:
                    content = None if path.exists() else packs.PACKS.content(str(path))
                except packs.DamagedPack as error:
                    log.error("%s: %s", attempt, error)
                    continue
                if content:
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    packs.write_whole(str(path), content)

    def have(self, attempts: Iterable[AttemptId]) -> dict[str, dict[str, int]]:
        """How many bytes of each stream are here, for those of which any are."""
        sizes = {str(attempt): {stream: self._size(attempt, stream) for stream in STREAMS} for attempt in attempts}
        return {attempt: found for attempt, found in sizes.items() if any(found.values())}

    def _size(self, attempt: AttemptId, stream: str) -> int:
        try:
            return self.path(attempt, stream).stat().st_size
        except FileNotFoundError:
            return 0

    def take(self, message: Mapping[str, Any]) -> None:
        """Append the next bytes of a stream; bytes that are here already are not written again.

        Raises ValueError if bytes before them are missing: then only a new connection helps.
        """
        attempt = AttemptId.parse(message["id"])
        path, offset = self.path(attempt, message["stream"]), int(message["offset"])
        data = base64.b64decode(message["data"])
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            missing = offset - file.tell()
            if missing > 0:
                raise ValueError(f"{missing} bytes of {path.name} are missing before byte {offset}")
            file.write(data[-missing:] if missing else data)

    # An attempt whose results were collected, and of which nobody has written down yet that it ended, is marked:
    # should it be given up after all, its successor clears them away. All marks are lines of one file, because
    # creating a file for each attempt takes longer.

    def mark(self, attempt: AttemptId) -> None:
        with self._lock:
            self._marked.add(attempt)
            self._note(f"+{attempt}\n")

    def is_marked(self, attempt: AttemptId) -> bool:
        with self._lock:
            return attempt in self._marked

    def marked(self) -> list[AttemptId]:
        with self._lock:
            return sorted(self._marked)

    def unmark(self, attempts: Iterable[AttemptId]) -> None:
        with self._lock:
            gone = self._marked.intersection(attempts)
            self._marked -= gone
            self._told -= gone
            if gone and not self._marked:
                self._marks.unlink(missing_ok=True)
            elif gone:
                self._note("".join(f"-{attempt}\n" for attempt in gone))

    def told(self, attempts: Iterable[AttemptId]) -> None:
        """The yard has heard that they ended, before it could give them up: as long as this server lives they count."""
        with self._lock:
            self._told |= self._marked.intersection(attempts)

    def is_stray(self, attempt: AttemptId) -> bool:
        """Whether its results were collected and it does not count, now that it has a successor."""
        with self._lock:
            return attempt in self._marked and attempt not in self._told

    def _note(self, lines: str) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._marks.open("a") as file:
            file.write(lines)

    def _read_marks(self) -> set[AttemptId]:
        marked: set[AttemptId] = set()
        lines = self._marks.read_text().splitlines(keepends=True) if self._marks.exists() else []
        for line in lines:
            if line.endswith("\n"):  # otherwise it was cut off
                attempt = AttemptId.parse(line[1:-1])
                (marked.add if line.startswith("+") else marked.discard)(attempt)
        return marked

    def lacks(self, attempt: AttemptId, streams: Mapping[str, int]) -> str:
        """Which stream is not complete yet, in words; empty when all are here."""
        for stream, size in streams.items():
            if (found := self._size(attempt, stream)) < size:
                return f"{stream} has {found} of {size} bytes"
        return ""


def tasks_in(directory: Path, job: str) -> set[int]:
    """The tasks of a job of which anything is in this directory of attempts. Reads directories: call it in a thread."""
    own = directory / "jobs" / job
    return {int(file.name.partition(".")[0]) for file in own.glob("[0-9]*/*.*")} | packs.packed_tasks(str(own))


def _written(job: Path) -> Iterator[list[tuple[int, int]]]:
    """The attempts of which output is a file here, a directory at a time."""
    for bucket in _names(job):
        if bucket.isdigit():
            parts = (name.split(".") for name in _names(job / bucket) if name.endswith((".out", ".err")))
            yield sorted({(int(task), int(number)) for task, number, _ in parts})


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
