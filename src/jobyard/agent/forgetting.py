"""Forgetting: how are files deleted that nobody needs any more, without anybody waiting for it?"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Dict, Iterable, List, Set

from jobyard.agent.attempts.attempt import Attempt
from jobyard.agent.files import snapshots
from jobyard.agent.system.forking import Background
from jobyard.agent_protocol import records


class Forgetter:
    """Moves directories aside at once and removes them in the background; also what an earlier agent moved."""

    def __init__(self, background: Background, state_dir: str) -> None:
        self._background = background
        self._state_dir = state_dir
        self._trash = state_dir + "/trash"
        self._is_emptying = False

    def forget(
        self, jobs: List[str], unneeded: List[str], known: Dict[str, Dict[str, Any]], attempts: Iterable[Attempt]
    ) -> List[str]:
        """Let go of jobs and snapshots that no attempt here needs; returns these jobs. What is gone is no error."""
        present = list(attempts)
        busy = {attempt.slot.job for attempt in present}
        gone = [job for job in jobs if job not in busy]
        for job in gone:
            self._move("%s/jobs/%s" % (self._state_dir, job), "job-" + job)
        if unneeded:
            needed = self._snapshots_of(present, known)
            for snapshot in unneeded:
                if snapshot not in needed:
                    self._move("%s/snapshots/%s" % (self._state_dir, snapshot), "snapshot-" + snapshot)
        self.empty_trash()
        return gone

    def stored(self) -> Dict[str, List[str]]:
        """The jobs and the snapshots of which anything is here."""
        trees = _names(self._state_dir + "/snapshots")
        return {"jobs": _names(self._state_dir + "/jobs"), "snapshots": [name for name in trees if name[0] != "."]}

    def _snapshots_of(self, attempts: List[Attempt], known: Dict[str, Dict[str, Any]]) -> Set[str]:
        needed = set()
        for attempt in attempts:
            job = known.get(attempt.slot.job)
            if job is not None:
                needed.add(job["snapshot"])
            if attempt.item is None:  # taken over from an agent that died: its record tells
                record = records.read(records.paths(self._state_dir, attempt.id).record)
                needed.add(record.collection.snapshot if record and record.collection else "")
        return needed

    def _move(self, path: str, name: str) -> None:
        os.makedirs(self._trash, mode=0o700, exist_ok=True)
        for number in range(1000):
            try:
                os.rename(path, "%s/%s.%d" % (self._trash, name, number))
                return
            except FileNotFoundError:
                return
            except OSError:  # the name is in use by one that is being removed
                continue

    def empty_trash(self) -> None:
        """Remove what lies there, in a child; what comes meanwhile is removed by the next one."""
        if self._is_emptying or not _names(self._trash):
            return
        with suppress(OSError):  # too many processes: the next one does it
            self._background.run(self._remove_all, self._emptied)
            self._is_emptying = True

    def _remove_all(self) -> None:
        for name in _names(self._trash):
            snapshots.remove_tree(os.path.join(self._trash, name))

    def _emptied(self) -> None:
        self._is_emptying = False


def _names(directory: str) -> List[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
