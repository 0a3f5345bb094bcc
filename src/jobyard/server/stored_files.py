"""Stored files: how much of the disk does a job that has ended take, and has anybody fetched its results?"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from jobyard.staging.tree_snapshot import publish

log = logging.getLogger(__name__)

_FILE = "stored.json"
_FORM = 1
_AT_ONCE = 500  # files, before other threads get a turn
_PAUSE_SECONDS = 0.002
_BLOCK_BYTES = 512  # of st_blocks, whatever the file system
FoundFile = tuple[str, os.stat_result]


class EndedFiles(NamedTuple):
    """What decides about the files of a job that has ended."""

    job: str
    finished_at: float
    collects: bool  # its results were put where it was submitted


class Measured(NamedTuple):
    finished_at: float
    bytes: int
    has_results: bool  # that are only in the yard


class StoredFiles:
    """Of one yard, on this disk. What was measured is remembered in a file, also when that was: a cache, no more."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE
        self._places = (directory / "agent" / "jobs", directory / "mirror" / "jobs")
        self._known = _load(self._path)
        self._is_stopped = False

    @property
    def looked_at(self) -> float:
        """When all was last measured, also by an earlier server; 0: never."""
        try:
            return self._path.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def measure(self, ended: Iterable[EndedFiles]) -> Mapping[str, Measured]:
        """Of each, once after its end. May read a million files: call it in a thread; it leaves room for others."""
        found = {}
        for each in ended:
            known = self._known.get(each.job)
            is_known = known is not None and known.finished_at == each.finished_at
            found[each.job] = known if known is not None and is_known else self._measured(each)
        self._known = found
        try:
            publish(self._path, [json.dumps({"form": _FORM, "jobs": found}, separators=(",", ":")).encode()])
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error.strerror)
        return {
            job: each._replace(has_results=each.has_results and not self._is_fetched(job, each.finished_at))
            for job, each in found.items()
        }

    def was_fetched(self, job: str) -> None:
        """All of its results were sent to somebody who asked for them."""
        for place in self._places:
            if (place / job).is_dir():
                self._mark(place, job).touch()

    def stop(self) -> None:
        """Give up what is being measured, in whatever thread."""
        self._is_stopped = True

    def _is_fetched(self, job: str, finished_at: float) -> bool:
        """Since its end: there may be more of them than there were before."""
        for place in self._places:
            with suppress(FileNotFoundError):
                if self._mark(place, job).stat().st_mtime >= finished_at:
                    return True
        return False

    @staticmethod
    def _mark(place: Path, job: str) -> Path:
        return place / job / "fetched"

    def _measured(self, each: EndedFiles) -> Measured:
        size, has_results = 0, False
        local, mirrored = self._places
        for path, found in self._slowly(_files(local / each.job)):
            size += found.st_blocks * _BLOCK_BYTES
            has_results = has_results or ".output/" in path
        for path, found in self._slowly(_files(mirrored / each.job)):
            size += found.st_blocks * _BLOCK_BYTES
            is_result = not each.collects and path.endswith(".results") and found.st_size > 0
            has_results = has_results or is_result
        return Measured(each.finished_at, size, has_results)

    def _slowly(self, files: Iterator[FoundFile]) -> Iterator[FoundFile]:
        """Raises InterruptedError once it was stopped."""
        for number, found in enumerate(files, 1):
            yield found
            if number % _AT_ONCE == 0:
                time.sleep(_PAUSE_SECONDS)
                if self._is_stopped:
                    raise InterruptedError("the server ends")


def _files(directory: Path | str) -> Iterator[FoundFile]:
    """All below it; what vanishes meanwhile, or may not be read, is left out."""
    try:
        with os.scandir(directory) as entries:
            found = list(entries)
    except OSError:
        return
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path)
        else:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            yield entry.path, status


def _load(path: Path) -> dict[str, Measured]:
    try:
        data = json.loads(path.read_bytes())
        return {job: Measured(*each) for job, each in data["jobs"].items()} if data["form"] == _FORM else {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
