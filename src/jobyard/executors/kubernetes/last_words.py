"""Last words: how is the end of an attempt reported? Once all its output is here, and with what its pod says then."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from jobyard.agent_protocol import clock, records
from jobyard.agent_protocol.progress_reducer import ProgressReducer
from jobyard.errors import ExecutorError
from jobyard.executors.kubernetes.done import Done, Now
from jobyard.executors.kubernetes.followers import Followers
from jobyard.executors.kubernetes.observed import Observed, is_same
from jobyard.executors.kubernetes.outcomes import outcome_of, started_at
from jobyard.executors.kubernetes.steps import End
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import LiveAttempt
from jobyard.kubernetes.api import Api
from jobyard.kubernetes.paths import object_path
from jobyard.kubernetes.states import is_over
from jobyard.model.events import AttemptsFinished, Event, Finished
from jobyard.model.task import AttemptId, Outcome

log = logging.getLogger(__name__)

Object = dict[str, Any]
ENDING_LOOKS, ENDING_SECONDS = 10, 0.3  # an operator tells that a job failed before the kubelet tells of its pods


def clocks() -> Now:
    return Now(time.time(), clock.seconds())


class LastWords:
    """Of the attempts of one job."""

    def __init__(
        self,
        observed: Observed,
        done: Done,
        followers: Followers,
        mirror: Mirror,
        tell: Callable[[Sequence[Event]], None],
        again: Callable[[], None],
    ) -> None:
        """`again`: have the job looked at once more."""
        self._observed, self._done, self._followers = observed, done, followers
        self._mirror, self._tell, self._again = mirror, tell, again
        self._tasks: dict[AttemptId, asyncio.Task[None]] = {}

    @property
    def on_their_way(self) -> Collection[AttemptId]:
        return self._tasks.keys()

    def begin(self, api: Api, end: End) -> None:
        attempt = end.live.attempt
        self._done.ending.add(attempt)
        self._tasks[attempt] = asyncio.create_task(self._try(api, end), name=f"end of {attempt}")

    def disconnect(self) -> None:
        """Ends that were reported stay so; the others are reported over the next connection."""
        for attempt, task in self._tasks.items():
            task.cancel()
            self._done.ending.discard(attempt)
        self._tasks.clear()

    def forget_told(self) -> None:
        self._done.ending.intersection_update(self._tasks)

    async def _try(self, api: Api, end: End) -> None:
        attempt = end.live.attempt
        try:
            await self._end(api, end)
        except Exception:  # a bug of ours, or a pod that we do not understand: the next plan tries again
            log.exception("the end of %s", attempt)
            self._done.ending.discard(attempt)
            self._again()
        self._tasks.pop(attempt, None)

    async def _end(self, api: Api, end: End) -> None:
        each = end.live
        reducer = await self._followers.finish(each.attempt)
        self._done.followed.discard(each.attempt)
        pod = self._observed.latest(end.pod) if end.pod else None
        if end.asks and end.outcome and not end.outcome.succeeded and pod and self._observed.is_here(pod):
            pod = await _ended_pod(api, pod)  # its object may have been heard of before its pod
        outcome = self._outcome(end, pod, reducer)
        self._followers.ended([each.attempt])
        self._tell([AttemptsFinished((Finished(each.attempt, outcome),), clocks().at)])
        self._done.stop_requests.pop(each.attempt, None)

    def _outcome(self, end: End, pod: Object | None, reducer: ProgressReducer | None) -> Outcome:
        outcome, now = end.outcome, clocks()
        if pod is not None and (outcome is None or (not outcome.succeeded and is_over(pod))):
            outcome = self._outcome_of_pod(end.live, pod, reducer, now)
        assert outcome is not None
        if end.live.attempt in self._done.begun and outcome.started_at == outcome.finished_at and pod is not None:
            outcome = replace(outcome, started_at=min(now.at, started_at(pod) or now.at))
        return outcome

    def _outcome_of_pod(self, each: LiveAttempt, pod: Object, reducer: ProgressReducer | None, now: Now) -> Outcome:
        return outcome_of(
            pod,
            gone=self._observed.has_gone(pod),
            at=now.at,
            reducer=reducer,
            request=self._done.stop_request_of(each, pod, now),
            files=records.paths(str(self._mirror.directory), str(each.attempt)),
        )


async def _ended_pod(api: Api, pod: Object) -> Object:
    """The pod once it is over, or as it was last seen: it may be gone, or the cluster does not answer."""
    with suppress(ExecutorError):
        for _ in range(ENDING_LOOKS):
            if is_over(pod):
                break
            found = await api.get(object_path("v1", "pods", api.namespace, pod["metadata"]["name"]))
            if not is_same(found, pod):
                break
            pod = found
            await asyncio.sleep(ENDING_SECONDS)
    return pod
