"""Staging: which jobs wait here for the tree of files that they run in?"""

from __future__ import annotations

from typing import Any, Dict, List, Set

from jobyard.agent.files import snapshots
from jobyard.agent.system.connection import Connection


class Staging:
    """Knows whose snapshot is missing, and asks the server for it: once per connection."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self._missing: Dict[str, str] = {}  # job -> snapshot

    def waits(self, job: str) -> bool:
        return job in self._missing

    def check(self, job_id: str, job: Dict[str, Any], connection: Connection) -> None:
        """Ask for the job's snapshot, if it has one that is not here and was not asked for yet."""
        snapshot = job["snapshot"]
        if not snapshot or job_id in self._missing or snapshots.is_here(self._state_dir, snapshot):
            return
        self._missing[job_id] = snapshot
        self._ask(job_id, connection)

    def staged(self, snapshot: str, connection: Connection) -> List[str]:
        """The server says that it has sent this one: the jobs that need not wait any more. Asks again if it is not."""
        return self._ready_or_asked([job for job, missing in self._missing.items() if missing == snapshot], connection)

    def give_up(self, snapshot: str) -> List[str]:
        """The server cannot send this snapshot. Returns the jobs that wait for it."""
        jobs = [job for job, missing in self._missing.items() if missing == snapshot]
        for job in jobs:
            del self._missing[job]
        return jobs

    def ask_again(self, waiting: Set[str], connection: Connection) -> List[str]:
        """A new connection: what was on its way over the old one may be here or not. Others ask when they launch."""
        self._missing = {job: snapshot for job, snapshot in self._missing.items() if job in waiting}
        return self._ready_or_asked(list(self._missing), connection)

    def _ready_or_asked(self, jobs: List[str], connection: Connection) -> List[str]:
        ready = [job for job in jobs if snapshots.is_here(self._state_dir, self._missing[job])]
        for job in jobs:
            if job in ready:
                del self._missing[job]
            else:
                self._ask(job, connection)
        return ready

    def _ask(self, job: str, connection: Connection) -> None:
        connection.send({"ev": "missing", "snapshot": self._missing[job], "job": job})
