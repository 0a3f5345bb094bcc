"""How does a server start fast? From a picture of the state, and the journal after it. The picture is only a cache."""

from __future__ import annotations

import logging
import os
import pickle
from pathlib import Path

from jobyard.engine.yard_state import YardState
from jobyard.server.journal import Journal

log = logging.getLogger(__name__)


class Snapshots:
    """One file, only ever read by the build that wrote it: its form is not a promise, the journal's is."""

    def __init__(self, path: Path, build: str, yard_id: str) -> None:
        self._path = path
        self._stamp = (build, yard_id)

    def save(self, seq: int, state: YardState) -> None:
        """Best effort: without it the next start takes longer, and nothing else."""
        temporary = self._path.with_suffix(".new")
        try:
            with temporary.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)
                pickle.dump((self._stamp, seq, state), file, pickle.HIGHEST_PROTOCOL)
            temporary.replace(self._path)
        except OSError as error:
            log.warning("no snapshot: %s", error)

    def restore(self, journal: Journal) -> tuple[int, YardState]:
        """The state after the last row of the journal, and that row's number."""
        seq, state = self._load()
        if seq > journal.last_seq():  # the journal was put back to an older copy: it is the truth
            log.warning("snapshot ignored: it is newer than the journal")
            seq, state = 0, YardState()
        for number, events in journal.read(after=seq):
            for event in events:
                state.handle(event)
            seq = number
        return seq, state

    def _load(self) -> tuple[int, YardState]:
        try:
            with self._path.open("rb") as file:
                stamp, seq, state = pickle.load(file)
            if stamp == self._stamp and isinstance(state, YardState):
                return seq, state
        except FileNotFoundError:
            pass
        except Exception as error:  # a torn or foreign file is as good as none
            log.warning("snapshot ignored: %s", error)
        return 0, YardState()
