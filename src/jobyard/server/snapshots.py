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
from jobyard.errors import UserError
from jobyard.server.damages import Damage, Restored, from_base, replay
from jobyard.server.journal import Journal

log = logging.getLogger(__name__)

_FORMAT = "jobyard snapshot 2"
_PICKLE = "snapshot.pickle"  # of earlier versions; reading one could run anything


class Header(NamedTuple):
    """The first line of the file; the second is the state, with the damages that it had and that were accepted."""

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

    def renew(self, journal: Journal) -> Restored:
        """From the file and the rows after it, so that the live state is not read while it changes."""
        restored = self.restore(journal)
        self.save(restored)
        return restored

    def save(self, restored: Restored) -> None:
        """Best effort: without it the next start takes longer, and nothing else.

        Nothing is written while a damage is not accepted: restoring a copy of the database must be able to repair it.
        """
        if not all(damage.is_accepted for damage in restored.damages):
            return
        data = {"state": saved_state.save(restored.state), "damages": [each.plain() for each in restored.damages]}
        body = json.dumps(data, separators=(",", ":")).encode()
        header = Header(*self._stamp, restored.seq, hashlib.sha256(body).hexdigest())
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
        found = self._load()
        if found is not None and (why := _why_foreign(found, journal)):
            log.warning("snapshot ignored: %s", why)
            found = None
        seq, state, known = found or from_base(journal)
        seq, state, damages = replay(journal, seq, state)
        return Restored(seq, state, known + damages)

    def _load(self) -> Restored | None:
        try:
            first, _, body = self._path.read_bytes().partition(b"\n")
            header = Header(*json.loads(first))
            if header[:3] != self._stamp:
                return None
            if header.sha256 != hashlib.sha256(body).hexdigest():
                raise ValueError("its checksum is wrong")
            data = json.loads(body)
            damages = tuple(Damage.accepted(*each) for each in data["damages"])
            return Restored(header.seq, saved_state.load(data["state"]), damages)
        except FileNotFoundError:
            pass
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
            UserError,
        ) as error:  # a torn or foreign file counts as missing
            log.warning("snapshot ignored: %s", error)
        return None


def _why_foreign(found: Restored, journal: Journal) -> str:
    """Empty: it belongs to this journal. After a restore of an older database, the database counts."""
    if found.seq > journal.last_seq():
        return "it is newer than the journal"
    if found.seq < journal.first_seq() - 1:
        return "the rows after it are gone"
    if not {damage.row for damage in found.damages} <= journal.accepted_rows():
        return "it is without rows that this journal has"
    return ""
