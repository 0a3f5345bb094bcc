"""Outbox: what happened to attempts that the server does not know yet, and when is it sent?"""

from __future__ import annotations

import time
from typing import Any, Callable, Collection, Dict, List, Optional, Set, Tuple

from jobyard.agent.files.shipping import Shipper
from jobyard.agent.system.connection import Connection
from jobyard.agent.system.timers import Timer, Timers

BATCH_SECONDS = 0.05
_MOST_WAITING = 1 << 20


class Outbox:
    """Gathers what happened to attempts and sends it in batches; the first after a quiet time goes at once.

    Without a server that has reconciled it is dropped: records have it, and `reconcile` asks for it.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._connection: Optional[Connection] = None
        self._shipper: Optional[Shipper] = None  # only for a server that does not share this disk
        self._started: Dict[str, Optional[float]] = {}
        self._finished: List[Tuple[str, Dict[str, Any]]] = []
        self._withdrawn: List[str] = []
        self._last = 0.0
        self._timer: Optional[Timer] = None
        self.has_undelivered = False  # something ended while nobody listened
        self.on_told: Callable[[Collection[str]], None] = lambda attempt_ids: None  # that these have ended

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    @property
    def has_delivered_all(self) -> bool:
        """Has everything that there is to tell been told, as far as somebody listens?"""
        return not self._finished and (self._shipper is None or not self._shipper.undelivered)

    def untold(self) -> Set[str]:
        """Those that have ended, and that was not told yet."""
        told_next = {attempt_id for attempt_id, _ in self._finished}
        return told_next if self._shipper is None else told_next.union(self._shipper.ending)

    def open(self, connection: Connection, shipper: Optional[Shipper] = None) -> None:
        """From now on there is somebody to tell; with a shipper, what attempts wrote goes there before their end."""
        self._connection, self._shipper = connection, shipper
        self.has_undelivered = False

    def close(self) -> None:
        self.has_undelivered = not self.has_delivered_all or self.has_undelivered
        if self._shipper is not None:
            self._shipper.close()
        self._connection = self._shipper = None
        self._started, self._finished, self._withdrawn = {}, [], []

    def started(self, attempt_id: str, at: Optional[float]) -> None:
        if self._connection is not None:
            self._started[attempt_id] = at
            if self._shipper is not None:
                self._shipper.started(attempt_id)

    def finished(self, attempt_id: str, outcome: Dict[str, Any]) -> None:
        if self._connection is None:
            self.has_undelivered = True
        elif self._shipper is not None:
            self._shipper.finished(attempt_id, outcome)
        else:
            self._started.pop(attempt_id, None)
            self._finished.append((attempt_id, outcome))

    def deliver(self, ended: List[Tuple[str, Dict[str, Any]]]) -> None:
        """Everything that these attempts wrote has been sent; their ends may follow."""
        self._take(ended)
        self.flush()

    def _take(self, ended: List[Tuple[str, Dict[str, Any]]]) -> None:
        for attempt_id, _ in ended:
            self._started.pop(attempt_id, None)
        self._finished += ended

    def withdrawn(self, attempt_id: str) -> None:
        if self._connection is not None:
            self._withdrawn.append(attempt_id)

    def refused(self, slot: str, sentence: str) -> None:
        """Other yards hold the room that this slot was to have."""
        if self._connection is not None:
            self._connection.send({"ev": "refused", "slot": slot, "message": sentence})

    def progressed(self, by_attempt: Dict[str, Dict[str, Any]]) -> bool:
        """Tell how far attempts have come. False: nobody listens, or there is too much else to send."""
        if self._connection is None or not self._connection.has_room(_MOST_WAITING):
            return False
        self._connection.send({"ev": "progress", "attempts": by_attempt})
        return True

    def flush(self) -> None:
        """Send what there is, unless a batch has just gone: then a little later, with what comes until then."""
        if not self._has_unsent or self._timer is not None:
            return
        wait = self._last + BATCH_SECONDS - time.monotonic()
        if wait <= 0:
            self._send()
        else:
            self._timer = self._timers.after(wait, self._send)

    def send_now(self) -> None:
        """Send what there is: what is said next comes after it, or somebody here has nothing left to do."""
        if self._timer is not None:
            self._timer.cancel()
        self._send()

    @property
    def _has_unsent(self) -> bool:
        return bool(self._started or self._withdrawn) or not self.has_delivered_all

    def _send(self) -> None:
        self._timer = None
        if self._shipper is not None:
            self._take(self._shipper.pump())
        if self._connection is None or not (self._started or self._finished or self._withdrawn):
            return
        started, finished, withdrawn = self._started, self._finished, self._withdrawn
        self._started, self._finished, self._withdrawn = {}, [], []
        self._last = time.monotonic()
        self._connection.send(
            {"ev": "attempts", "started": list(started.items()), "finished": finished, "withdrawn": withdrawn}
        )
        self.on_told([attempt_id for attempt_id, _ in finished])
