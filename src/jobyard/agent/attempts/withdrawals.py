"""Withdrawals: how does the server take back what it launched, whether that has started or not?"""

from __future__ import annotations

import time
from collections import deque
from typing import Callable, Collection, Dict, Iterable, List

from jobyard.agent.attempts.attempt import HANDED, QUEUED, Attempt, Slot
from jobyard.agent.attempts.outbox import Outbox
from jobyard.agent.attempts.stop_requests import StopRequests
from jobyard.agent.attempts.stopping import Stopper
from jobyard.agent.execution.lane import DEFAULT_GRACE_SECONDS
from jobyard.agent.files.packer import Packer
from jobyard.agent_protocol import records


class Withdrawals:
    """What has not started is withdrawn: its record says so, and no lane begins it. What has is asked, or made, to end.

    What has ended is no error.
    """

    def __init__(
        self,
        attempts: Dict[str, Attempt],
        outbox: Outbox,
        state_dir: str,
        stop_requests: StopRequests,
        stopper: Stopper,
        feed: Callable[[Slot], None],
        packer: Packer,
    ) -> None:
        self._packer = packer
        self._attempts = attempts
        self._outbox = outbox
        self._state_dir = state_dir
        self._stop_requests = stop_requests
        self._stopper = stopper
        self._feed = feed

    def withdraw(self, ids: Iterable[str]) -> None:
        """Give back what has not started; leave the rest alone."""
        self._withdraw([self._attempts[name] for name in ids if name in self._attempts])

    def stop(self, ids: Iterable[str], grace: float) -> None:
        """Withdraw what has not started; end the rest, politely first."""
        begun = self._begun(ids)
        self._stop_requests.override(begun)
        self._stopper.end([attempt for attempt in begun if not attempt.is_followed], grace)
        for attempt in begun:
            if attempt.is_followed:  # an agent before us may have begun to end it
                self._stopper.end([attempt], self._stop_requests.grace_left(attempt, grace))

    def ask_to_stop(self, ids: Iterable[str], deadline: float, grace: float, at_once: bool) -> None:
        """Withdraw what has not started; ask the rest to stop at a checkpoint, and end it if it does not in time.

        Asked again, the earlier deadline holds. Raises OSError if a task cannot be told; it is ended all the same.
        """
        self._stop_requests.ask(self._begun(ids), deadline, grace, at_once)

    def keep_only(self, live: Iterable[str], held: Collection[str]) -> None:
        """Withdraw or end all but these and those of `held` jobs, and tell nothing of them any more."""
        believed = set(live)
        others = (attempt for name, attempt in self._attempts.items() if name not in believed)
        superseded = [attempt for attempt in others if records.split_attempt(attempt.id)[0] not in held]
        for attempt in superseded:
            attempt.is_superseded = True
        begun = self._withdraw(superseded)
        self._stop_requests.override(begun)
        for attempt in begun:
            grace = DEFAULT_GRACE_SECONDS if attempt.grace is None else attempt.grace
            self._stopper.end([attempt], self._stop_requests.grace_left(attempt, grace))

    def _begun(self, ids: Iterable[str]) -> List[Attempt]:
        """Those of them that have started or may have. The others never will: they are withdrawn."""
        known = []
        for name in ids:
            attempt = self._attempts.get(name)
            if attempt is not None:
                known.append(attempt)
            elif self._fence_unknown(name):
                self._outbox.withdrawn(name)
        return self._withdraw(known)

    def _withdraw(self, attempts: List[Attempt]) -> List[Attempt]:
        """Make sure that these never start; returns those that have started or may have."""
        begun, queues = [], set()
        for attempt in attempts:
            if attempt.is_withdrawn:
                continue
            if attempt.state == QUEUED and attempt.item is not None:
                queues.add(attempt.slot)
                del self._attempts[attempt.id]
            elif not (attempt.state == HANDED and attempt.lane is not None and self._fence(attempt.id)):
                begun.append(attempt)
                continue
            attempt.is_withdrawn = True
            if not attempt.is_superseded:
                self._outbox.withdrawn(attempt.id)
        for slot in queues:
            slot.queue = deque(attempt for attempt in slot.queue if not attempt.is_withdrawn)
            self._feed(slot)
        self._outbox.flush()
        return begun

    def _fence_unknown(self, name: str) -> bool:
        self._packer.unpack(name)
        return self._fence(name)

    def _fence(self, name: str) -> bool:
        return records.withdraw(records.paths(self._state_dir, name).record, time.time())
