"""Wanted state: what does the yard want of one job of a cluster? A plan knows this, and what was observed and done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jobyard.executors.kubernetes import names
from jobyard.executors.kubernetes.attempt_pods import pods_by_attempt
from jobyard.executors.kubernetes.kinds import Kind, kind_of
from jobyard.executors.kubernetes.object_keys import ObjectKey, Scope, is_array, is_ours
from jobyard.executors.kubernetes.observed import Observed
from jobyard.executors.protocol import JobFacts, LiveAttempt
from jobyard.model.job import JobSpec

Object = dict[str, Any]


class WantedObject(NamedTuple):
    """An object that should be there, first of the `bodies` that would be sent, and the attempts that it runs."""

    key: ObjectKey
    kind: Kind
    bodies: Sequence[Object]
    attempts: Sequence[LiveAttempt]

    @property
    def name(self) -> str:
        name: str = self.bodies[0]["metadata"]["name"]
        return name


class Wanted(NamedTuple):
    spec: JobSpec
    facts: JobFacts
    live: Sequence[LiveAttempt]
    objects: Sequence[WantedObject]
    array: str  # the name of its Indexed Job, whether that is there or not; empty: it is no array
    cluster: str
    has_queue: bool  # Kueue lets objects in
    is_ended: Callable[[int], bool]  # is nothing more wanted of this task?
    sees_all_of: Callable[[Kind], bool]  # what is not seen of this kind is not there
    is_simulated: Callable[[str], bool]  # nobody runs anything on this node, and nobody can read its output

    @property
    def ended(self) -> int:
        """So many tasks of the job are over."""
        return max(0, self.spec.size - len(self.live) - self.facts.waiting)

    @property
    def slots(self) -> int:
        """Of the array: a task that runs alone has one of them."""
        return self.facts.slots - sum(len(item.attempts) for item in self.objects if item.key.scope is Scope.TASK)


def with_pod_of(spec: JobSpec, observed: Observed, live: Sequence[LiveAttempt]) -> dict[LiveAttempt, ObjectKey]:
    """Attempts that wait and have a pod, or had one, in an object of all tasks: that may have ended, or be gone."""
    waiting = [each for each in live if not each.is_running]
    if not waiting or not is_ours(spec):
        return {}
    scope = Scope.ARRAY if is_array(spec) else Scope.WHOLE
    found = pods_by_attempt(spec, kind_of(spec), waiting, observed.pods.values(), observed.gone)
    labels = {each: pod["metadata"]["labels"] for each, pod in found.items()}
    whole = {each: of for each, of in labels.items() if names.TASK not in of and names.ATTEMPT in of}
    return {each: ObjectKey(scope, int(of[names.ATTEMPT])) for each, of in whole.items()}
