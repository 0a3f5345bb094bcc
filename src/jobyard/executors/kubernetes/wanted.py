"""Wanted state: what does the yard want of one job of a cluster? A plan knows this, and what was observed and done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jobyard.executors.kubernetes import names
from jobyard.executors.kubernetes.kinds import Kind, kind_of
from jobyard.executors.kubernetes.observed import Observed
from jobyard.executors.kubernetes.units import Scope, UnitKey, is_array, is_ours, kind_of_unit, pods_by_attempt
from jobyard.executors.protocol import JobFacts, LiveAttempt
from jobyard.model.job import JobSpec

Object = dict[str, Any]


class Unit(NamedTuple):
    """An object that should be there, with what belongs to it, as it would be sent, and the attempts that it runs."""

    key: UnitKey
    kind: Kind
    objects: Sequence[Object]
    attempts: Sequence[LiveAttempt]

    @property
    def name(self) -> str:
        name: str = self.objects[0]["metadata"]["name"]
        return name


class Wanted(NamedTuple):
    spec: JobSpec
    facts: JobFacts
    live: Sequence[LiveAttempt]
    units: Sequence[Unit]
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
        return self.facts.slots - sum(len(unit.attempts) for unit in self.units if unit.key.scope is Scope.TASK)


def unit_of(spec: JobSpec, key: UnitKey, objects: Sequence[Object], attempts: Sequence[LiveAttempt]) -> Unit:
    return Unit(key, kind_of_unit(spec, key), objects, attempts)


def with_pod_of(spec: JobSpec, observed: Observed, live: Sequence[LiveAttempt]) -> dict[LiveAttempt, UnitKey]:
    """Attempts that wait and have a pod, or had one, in an object of all tasks: that may have ended, or be gone."""
    waiting = [each for each in live if not each.is_running]
    if not waiting or not is_ours(spec):
        return {}
    scope = Scope.ARRAY if is_array(spec) else Scope.WHOLE
    found = pods_by_attempt(spec, kind_of(spec), waiting, observed.pods.values(), observed.gone)
    labels = {each: pod["metadata"]["labels"] for each, pod in found.items()}
    whole = {each: of for each, of in labels.items() if names.TASK not in of and names.ATTEMPT in of}
    return {each: UnitKey(scope, int(of[names.ATTEMPT])) for each, of in whole.items()}
