"""Stop requests: who was asked to stop at a checkpoint, and what follows when the time for that is over?"""

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


class StopRequests:
    """Asks attempts to stop, and ends those that have not stopped in time."""

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

    def ask(self, attempts: List[Attempt], deadline: float, grace: float, at_once: bool) -> None:
        """Ask these to stop. Asked again, the earlier moment holds. Raises OSError if a file could not be written."""
        trouble: Optional[OSError] = None
        now = clock.seconds()
        for attempt in attempts:
            request = self.recall(attempt)
            if attempt.wants_stop is not None and (request is None or request.is_overridden):
                continue  # it is being ended for another reason
            if request is None:
                request = attempt.stop_request = StopRequest(now, deadline, grace)
            elif deadline < request.due_in(now):
                request.deadline, request.grace = now + deadline - request.asked_up, grace
            request.at_once = request.at_once or at_once
            request.is_overridden = False
            try:
                request.write(self._path(attempt))
            except OSError as error:
                trouble = error
            self.pursue(attempt)
        if trouble is not None:
            raise trouble

    def recall(self, attempt: Attempt) -> Optional[StopRequest]:
        """The request that an attempt has, also if an agent before us gave it."""
        if attempt.stop_request is None and attempt.is_followed:
            attempt.stop_request = stop_request.read(self._path(attempt))
        return attempt.stop_request

    def override(self, attempts: List[Attempt]) -> None:
        """A plain stop of these running attempts replaces what they were asked before."""
        for attempt in attempts:
            request = self.recall(attempt)
            if request is None:
                # For the SDK, SIGTERM is a request to stop at a checkpoint, also in ranks that report nothing: the file
                # says that the task has to end now.
                request = attempt.stop_request = StopRequest(clock.seconds(), 0.0, 0.0)
            if not request.is_overridden:
                request.is_overridden = True
                request.ended_up = request.ended_up or clock.seconds()  # the signal is next
                with suppress(OSError):
                    request.write(self._path(attempt))

    def grace_left(self, attempt: Attempt, grace: float) -> float:
        """The rest of it, where an agent before us has begun to end this attempt."""
        request = self.recall(attempt)
        return grace if request is None or not attempt.is_followed else request.grace_left(grace, clock.seconds())

    def pursue(self, attempt: Attempt) -> None:
        """End it when its time is over, or as soon as it writes nothing; a request of an agent before us too."""
        request = attempt.stop_request
        if request is None or request.is_overridden:
            return
        left = 0.0 if request.signalled_at else request.due_in(clock.seconds())
        if left > 0 and request.at_once:
            self._watch(attempt)
        elif left > 0:
            self._timers.after(left, lambda: self._is_due(attempt))
        else:
            self._overdue(attempt, request)

    def _is_due(self, attempt: Attempt) -> None:
        request = attempt.stop_request
        if self._attempts.get(attempt.id) is not attempt or request is None or request.is_overridden:
            return
        if not request.signalled_at:
            self.pursue(attempt)

    def _watch(self, attempt: Attempt) -> None:
        if attempt.id not in self._watched:
            files = records.paths(self._state_dir, attempt.id)
            # All tasks of a gang have one directory. Which jobs are gangs, an agent that died has not told us.
            own, shared = files.checkpoint, records.shared_checkpoint(files).checkpoint
            self._watched[attempt.id] = Quiet([own] if os.path.isdir(own) else [shared])
            self._look(attempt)

    def _look(self, attempt: Attempt) -> None:
        request, watched = attempt.stop_request, self._watched[attempt.id]
        is_alive = self._attempts.get(attempt.id) is attempt
        if is_alive and request is not None and not request.is_overridden:
            if request.due_in(clock.seconds()) > 0 and not watched.is_quiet():
                pause = max(0.0, min(watched.pause, request.due_in(clock.seconds())))
                self._timers.after(pause, lambda: self._look(attempt))
                return
            self._overdue(attempt, request)
        del self._watched[attempt.id]

    def _overdue(self, attempt: Attempt, request: StopRequest) -> None:
        if attempt.wants_stop is not None and attempt.state == RUNNING:
            return  # it is being ended
        if not request.signalled_at:
            request.signalled_at = time.time()
            request.ended_up = request.ended_up or clock.seconds()
            with suppress(OSError):
                request.write(self._path(attempt))  # before the signal: we may die in between
        self._end([attempt], self.grace_left(attempt, request.grace))

    def _path(self, attempt: Attempt) -> str:
        return records.paths(self._state_dir, attempt.id).stop
