"""Held job: what was observed of one job of a cluster, what was done for it, and which output is still on its way?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jobyard.executors.kubernetes.done import Done
from jobyard.executors.kubernetes.followers import Followers
from jobyard.executors.kubernetes.last_words import LastWords
from jobyard.executors.kubernetes.object_keys import ObjectKey, Scope
from jobyard.executors.kubernetes.observed import Observed
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import LiveAttempt
from jobyard.model.events import Event

Object = dict[str, Any]


class HeldJob:
    def __init__(
        self,
        job_id: str,
        mirror: Mirror,
        tell: Callable[[Sequence[Event]], None],
        again: Callable[[str], None],
    ) -> None:
        """`again`: have a job looked at once more, some seconds later."""
        self.id = job_id
        self.observed = Observed()
        self.done = Done()
        self.built: dict[ObjectKey, list[Object]] = {}  # objects, as they were when their attempts began
        self.followers = Followers(mirror, tell)
        self.last_words = LastWords(self.observed, self.done, self.followers, mirror, tell, partial(again, job_id))
        self.is_touched = False  # something changed while it was reconciled

    @property
    def is_empty(self) -> bool:
        """Is nothing of it there any more, and no output still on its way?"""
        return not (self.observed.objects or self.observed.pods or self.followers or self.last_words.on_their_way)

    def disconnect(self) -> None:
        self.followers.stop_all()
        self.last_words.disconnect()
        self.done.followed.clear()

    def forget_told(self) -> None:
        """The yard hears of all of it again."""
        self.done.forget_told()
        self.followers.forget_told()
        self.last_words.forget_told()

    def prune(self, live: Sequence[LiveAttempt]) -> None:
        """What nobody asks for any more, once it is much."""
        if len(self.done.ending) + len(self.observed.gone) >= 100 + 2 * len(live):
            self.done.prune({each.attempt for each in live}, self.last_words.on_their_way)
            self.observed.forget_gone({each.pod for each in live})
            alone = {ObjectKey(Scope.TASK, each.attempt.number, each.attempt.task) for each in live}
            for key in [key for key in self.built if key.scope is Scope.TASK and key not in alone]:
                del self.built[key]
                self.done.since.pop(key, None)
