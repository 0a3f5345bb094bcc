"""Lifecycle: what follows when an attempt has begun, when it is over, and when it cannot begin?"""

from __future__ import annotations

import time
from typing import Dict, Iterable

from jobyard.agent.attempts.attempt import Attempt
from jobyard.agent.attempts.endings import Endings
from jobyard.agent.attempts.memory_watch import MemoryWatch
from jobyard.agent.attempts.outbox import Outbox
from jobyard.agent.attempts.spools import Spools
from jobyard.agent.attempts.stop_requests import StopRequests
from jobyard.agent.attempts.stopping import Stopper
from jobyard.agent.devices.gpus import Gpus
from jobyard.agent.execution.container_words import RUNTIME_FAILED
from jobyard.agent.execution.containers import ContainerRemover
from jobyard.agent.system.timers import Timers
from jobyard.agent_protocol import faults
from jobyard.agent_protocol.records import Ending


class Lifecycle:
    """Has attempts watched while they run, and told of when they are over: each once, unless `reconcile` asks again."""

    def __init__(
        self,
        timers: Timers,
        attempts: Dict[str, Attempt],
        outbox: Outbox,
        state_dir: str,
        gpus: Gpus,
        remover: ContainerRemover,
    ) -> None:
        self._timers = timers
        self._attempts = attempts
        self._outbox = outbox
        self._remover = remover
        self.stopper = Stopper(timers, attempts)
        self.stop_requests = StopRequests(timers, attempts, state_dir, self.stopper.end)
        self.spools = Spools(timers, attempts, outbox, state_dir)
        self._memory_watch = MemoryWatch(timers, attempts, state_dir)
        self._endings = Endings(state_dir, gpus, self.spools, self.stop_requests)

    def has_begun(self, attempt: Attempt) -> None:
        """Tell that its process exists, and end it if that was asked in the meantime."""
        if not attempt.is_superseded:
            self._outbox.started(attempt.id, attempt.started_at)
        self.spools.watch()
        if attempt.limit_mib:
            self._memory_watch.begin(attempt)
        if attempt.wants_stop is not None:
            self.stopper.end([attempt], attempt.wants_stop)
        elif attempt.is_followed and self.stop_requests.recall(attempt) is not None:
            self.stop_requests.pursue(attempt)

    def finish(self, attempt: Attempt, ending: Ending) -> None:
        """It is over. Told of at once, or when all that it reported has been read."""
        if not attempt.is_superseded and not self.spools.catches_up(attempt):
            self._timers.after(0.0, lambda: self._finish_later(attempt, ending))
            return
        faults.point("agent-finishing")
        if attempt.is_contained and (ending.exit_code is None or ending.exit_code == RUNTIME_FAILED):
            self._remover.later()
        self._attempts.pop(attempt.id, None)
        if attempt.wants_stop is not None:
            self.stopper.clear(attempt)
        if attempt.is_superseded:
            self.spools.forget(attempt)
        else:
            self._outbox.finished(attempt.id, self._endings.describe(attempt, ending))

    def _finish_later(self, attempt: Attempt, ending: Ending) -> None:
        self.finish(attempt, ending)
        self._outbox.flush()

    def fail(self, attempts: Iterable[Attempt], trouble: str) -> None:
        """These cannot begin here, and so have failed. No record of them remains."""
        now = time.time()
        for attempt in attempts:
            del self._attempts[attempt.id]
            if not attempt.is_superseded:
                ended = {"started_at": now, "finished_at": now, "exit_code": 126, "message": trouble}
                self._outbox.finished(attempt.id, ended)
