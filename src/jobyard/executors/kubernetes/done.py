"""Done for a job: what has this server sent to the cluster, and reported to the yard?

A new server knows none of it, and comes to the same end: it is there so that nothing is sent or told twice.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jobyard.agent_protocol.stop_request import StopRequest
from jobyard.executors.kubernetes.object_keys import ObjectKey
from jobyard.executors.kubernetes.outcomes import deleted_at
from jobyard.executors.protocol import LiveAttempt
from jobyard.model.events import AttemptsAwaited, AttemptsStarted, Event
from jobyard.model.task import AttemptId

Object = dict[str, Any]


class Now(NamedTuple):
    """`at` is of the wall's clock, `up` of the boot clock."""

    at: float
    up: float


@dataclass
class Done:
    made: set[str] = field(default_factory=set)  # objects, with all that belongs to them
    deleted: set[str] = field(default_factory=set)
    patched: dict[str, Object] = field(default_factory=dict)  # the last that let an object in
    secrets_owner: str | None = None  # the object; None: nobody, they are to stay
    since: dict[ObjectKey | str, float] = field(default_factory=dict)  # what is waited for, and since when
    begun: dict[AttemptId, str] = field(default_factory=dict)  # told, with the pod
    words: dict[AttemptId, str] = field(default_factory=dict)  # what they wait for, as told
    followed: set[AttemptId] = field(default_factory=set)  # their output is being read
    ending: set[AttemptId] = field(default_factory=set)  # their last words are on their way, or reported
    hurried: set[AttemptId] = field(default_factory=set)  # they are to end without their grace
    stop_requests: dict[AttemptId, StopRequest] = field(default_factory=dict)

    def told(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, AttemptsStarted):
                for started in event.items:
                    self.begun[started.attempt] = started.unit
                    self.words.pop(started.attempt, None)
            elif isinstance(event, AttemptsAwaited):
                self.words.update((awaited.attempt, awaited.sentence) for awaited in event.items)

    def signalled(self, attempts: Iterable[LiveAttempt], now: Now) -> None:
        """These are ended now, politely."""
        for each in attempts:
            if each.is_yielding:
                request = self.stop_requests.setdefault(each.attempt, StopRequest(now.up, 0.0, 0.0))  # never asked
                request.at_once = request.at_once or each.at_once
                request.signalled_at = request.signalled_at or math.floor(now.at)  # ends are told in whole seconds

    def stop_request_of(self, each: LiveAttempt, pod: Object, now: Now) -> StopRequest | None:
        """What it was asked; by an earlier server, where the yard knows of it and we do not."""
        request = self.stop_requests.get(each.attempt)
        if request is None and each.is_yielding:
            request = StopRequest(now.up, each.yield_seconds, 0.0)
            request.at_once, request.signalled_at = each.at_once, deleted_at(pod) or 0.0
        return request

    def has_waited(self, what: ObjectKey | str, seconds: float, now: Now) -> bool:
        """Is this waited for, and so long? The event loop may ring a little early."""
        return now.up - self.since.get(what, now.up) >= seconds * 0.9

    def begin_anew(self, name: str) -> None:
        """An object of this name is made, perhaps for the second time: nothing was done for it yet."""
        self.deleted.discard(name)
        self.patched.pop(name, None)
        for what in ("{}", "end of {}", "pods of {}", "head of {}", "fate of {}"):
            self.since.pop(what.format(name), None)

    def forget_told(self) -> None:
        """Whoever forgot everything hears of it again."""
        self.begun.clear()
        self.words.clear()

    def prune(self, attempts: Collection[AttemptId], on_their_way: Collection[AttemptId]) -> None:
        """Arrays may have very many tasks: only these are still asked for."""
        self.ending = {attempt for attempt in self.ending if attempt in attempts or attempt in on_their_way}
        self.begun = {attempt: pod for attempt, pod in self.begun.items() if attempt in attempts}
        self.words = {attempt: words for attempt, words in self.words.items() if attempt in attempts}
        self.hurried.intersection_update(attempts)
