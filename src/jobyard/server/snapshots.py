"""Snapshot file: how does a server start fast? From a saved state and the journal after it. It is only a cache."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from jobyard.engine import saved_state
from jobyard.engine.yard_state import YardState
from jobyard.errors import UserError
from jobyard.server.damages import Restored, replay
from jobyard.server.journal import Journal

log = logging.getLogger(__name__)

_FORMAT = "jobyard snapshot 1"
_PICKLE = "snapshot.pickle"  # of earlier versions; reading one could run anything


class Header(NamedTuple):
    """The first line of the file; the second is the state."""

    format: str
    build: str
    yard_id: str
    seq: int
    sha256: str


class Snapshots:
    """One file, only ever read by the build that wrote it: its form is not a promise, the journal's is."""

    def __init__(self, path: Path, build: str, yard_id: str) -> None:
        self._path = path
        self._stamp = (_FORMAT, build, yard_id)
        with suppress(OSError):
            path.with_name(_PICKLE).unlink()

    def save(self, seq: int, state: YardState) -> None:
        """Best effort: without it the next start takes longer, and nothing else."""
        body = json.dumps(saved_state.save(state), separators=(",", ":")).encode()
        header = Header(*self._stamp, seq, hashlib.sha256(body).hexdigest())
        temporary = self._path.with_suffix(".new")
        try:
            temporary.unlink(missing_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(json.dumps(header).encode() + b"\n" + body)
            temporary.replace(self._path)
        except OSError as error:
            log.warning("no snapshot: %s", error)

    def restore(self, journal: Journal) -> Restored:
        """The state after the last row of the journal."""
        seq, state = self._load()
        if seq > journal.last_seq():  # the journal was put back to an older copy: it is the truth
            log.warning("snapshot ignored: it is newer than the journal")
            seq, state = 0, YardState()
        return replay(journal, seq, state)

    def _load(self) -> tuple[int, YardState]:
        try:
            first, _, body = self._path.read_bytes().partition(b"\n")
            header = Header(*json.loads(first))
            if header[:3] != self._stamp:
                return 0, YardState()
            if header.sha256 != hashlib.sha256(body).hexdigest():
                raise ValueError("its checksum is wrong")
            return header.seq, saved_state.load(json.loads(body))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, UserError) as error:  # torn or foreign is as good as none
            log.warning("snapshot ignored: %s", error)
        return 0, YardState()
