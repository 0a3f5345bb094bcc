"""Stop orders: who was asked to stop at a checkpoint, and what follows when the time for that is over?"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Callable, Dict, List, Optional

from jobyard.agent.attempts.attempt import RUNNING, Attempt
from jobyard.agent.attempts.quiet import Quiet
from jobyard.agent.system.timers import Timers
from jobyard.agent_protocol import clock, records, stop_request
from jobyard.agent_protocol.stop_request import StopRequest


class Orders:
    """Gives orders, and sees to it that they are followed in time."""

    def __init__(
        self,
        timers: Timers,
        attempts: Dict[str, Attempt],
        state_dir: str,
        end: Callable[[List[Attempt], float], None],
    ) -> None:
        self._timers = timers
        self._attempts = attempts
        self._state_dir = state_dir
        self._end = end
        self._watched: Dict[str, Quiet] = {}  # of those that tell nothing: do they write a checkpoint now?

    def give(self, attempts: List[Attempt], deadline: float, grace: float, at_once: bool) -> None:
        """Ask these to stop. Asked again, the earlier moment holds. Raises OSError if a file could not be written."""
        trouble: Optional[OSError] = None
        now = clock.seconds()
        for attempt in attempts:
            order = self.recall(attempt)
            if attempt.wants_stop is not None and (order is None or order.is_overridden):
                continue  # it is being ended for another reason
            if order is None:
                order = attempt.order = StopRequest(now, deadline, grace)
            elif deadline < order.due_in(now):
                order.deadline, order.grace = now + deadline - order.asked_up, grace
            order.at_once = order.at_once or at_once
            order.is_overridden = False
            try:
                order.write(self._path(attempt))
            except OSError as error:
                trouble = error
            self.pursue(attempt)
        if trouble is not None:
            raise trouble

    def recall(self, attempt: Attempt) -> Optional[StopRequest]:
        """The order that an attempt has, also if an agent before us gave it."""
        if attempt.order is None and attempt.is_followed:
            attempt.order = stop_request.read(self._path(attempt))
        return attempt.order

    def override(self, attempts: List[Attempt]) -> None:
        """A plain stop of these running attempts replaces what they were asked before."""
        for attempt in attempts:
            order = self.recall(attempt)
            if order is None:
                # For the SDK, SIGTERM is a request to stop at a checkpoint, also in ranks that report nothing: the file
                # says that the task has to end now.
                order = attempt.order = StopRequest(clock.seconds(), 0.0, 0.0)
            if not order.is_overridden:
                order.is_overridden = True
                order.ended_up = order.ended_up or clock.seconds()  # the signal is next
                with suppress(OSError):
                    order.write(self._path(attempt))

    def grace_left(self, attempt: Attempt, grace: float) -> float:
        """The rest of it, where an agent before us has begun to end this attempt."""
        order = self.recall(attempt)
        return grace if order is None or not attempt.is_followed else order.grace_left(grace, clock.seconds())

    def pursue(self, attempt: Attempt) -> None:
        """End it when its time is over, or as soon as it writes nothing; an order of an agent before us too."""
        order = attempt.order
        if order is None or order.is_overridden:
            return
        left = 0.0 if order.signalled_at else order.due_in(clock.seconds())
        if left > 0 and order.at_once:
            self._watch(attempt)
        elif left > 0:
            self._timers.after(left, lambda: self._is_due(attempt))
        else:
            self._overdue(attempt, order)

    def _is_due(self, attempt: Attempt) -> None:
        order = attempt.order
        if self._attempts.get(attempt.id) is not attempt or order is None or order.is_overridden:
            return
        if not order.signalled_at:
            self.pursue(attempt)

    def _watch(self, attempt: Attempt) -> None:
        if attempt.id not in self._watched:
            files = records.paths(self._state_dir, attempt.id)
            # All tasks of a gang have one directory. Which jobs are gangs, an agent that died has not told us.
            own, shared = files.checkpoint, records.shared_checkpoint(files).checkpoint
            self._watched[attempt.id] = Quiet([own] if os.path.isdir(own) else [shared])
            self._look(attempt)

    def _look(self, attempt: Attempt) -> None:
        order, watched = attempt.order, self._watched[attempt.id]
        is_alive = self._attempts.get(attempt.id) is attempt
        if is_alive and order is not None and not order.is_overridden:
            if order.due_in(clock.seconds()) > 0 and not watched.is_quiet():
                pause = max(0.0, min(watched.pause, order.due_in(clock.seconds())))
                self._timers.after(pause, lambda: self._look(attempt))
                return
            self._overdue(attempt, order)
        del self._watched[attempt.id]

    def _overdue(self, attempt: Attempt, order: StopRequest) -> None:
        if attempt.wants_stop is not None and attempt.state == RUNNING:
            return  # it is being ended
        if not order.signalled_at:
            order.signalled_at = time.time()
            order.ended_up = order.ended_up or clock.seconds()
            with suppress(OSError):
                order.write(self._path(attempt))  # before the signal: we may die in between
        self._end([attempt], self.grace_left(attempt, order.grace))

    def _path(self, attempt: Attempt) -> str:
        return records.paths(self._state_dir, attempt.id).stop
