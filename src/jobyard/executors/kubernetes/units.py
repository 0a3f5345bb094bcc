"""Which objects should there be for the attempts that are live, and which pod is which attempt? Pure.

An array is one Indexed Job for all its tasks, which Kubernetes takes in order and retries by itself: each new pod of an
index is the next attempt. Everything else is one object for each attempt of the whole. A task of an array whose Job is
over, as after `yard retry`, has a Job of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from jobyard.executors.kubernetes.kinds import KINDS, Kind, kind_of
from jobyard.executors.kubernetes.manifest import is_one_attempt
from jobyard.executors.protocol import JobFacts, LiveAttempt
from jobyard.kubernetes.states import is_over
from jobyard.model.job import JobSpec, State

Object = dict[str, Any]
ARRAY_ATTEMPT = 1  # the Indexed Job of an array has the number of its first attempts


class Scope(Enum):
    ARRAY = "all tasks, also those whose turn has not come"
    WHOLE = "one attempt of all tasks"
    TASK = "one attempt of one task"


@dataclass(frozen=True, slots=True)
class UnitKey:
    """`number` is the attempt in the object's name; `task` counts only in a TASK."""

    scope: Scope
    number: int
    task: int = -1


def is_array(spec: JobSpec) -> bool:
    return not (is_one_attempt(spec) or spec.elastic or spec.is_one_object)


def units_of(
    spec: JobSpec,
    live: Sequence[LiveAttempt],
    facts: JobFacts,
    array: Object | None,
    standing: int | None = None,
    has_succeeded: Callable[[str], bool] = lambda unit: False,
) -> dict[UnitKey, list[LiveAttempt]]:
    """The objects that should be there, each with the attempts that it runs.

    `array` is the Indexed Job that there is, `standing` the attempt of the newest object that has not ended;
    `has_succeeded` says of a pod that it did.
    """
    if not live:
        return {}
    if not is_array(spec):
        return _units_of_whole(spec, live, facts, standing)
    units: dict[UnitKey, list[LiveAttempt]] = {}
    for each in live:
        is_again = not each.is_running and has_succeeded(each.unit)  # a person wants it once more
        is_inside = facts.is_fresh if array is None else not is_again and runs_in(array, each)
        if is_inside:
            key = UnitKey(Scope.ARRAY, ARRAY_ATTEMPT)
        else:
            key = UnitKey(Scope.TASK, each.attempt.number, each.attempt.task)
        units.setdefault(key, []).append(each)
    return units


def _units_of_whole(
    spec: JobSpec, live: Sequence[LiveAttempt], facts: JobFacts, standing: int | None
) -> dict[UnitKey, list[LiveAttempt]]:
    """A gang begins anew as a whole. Its first task is in all its objects, and so its attempt is the object's: others
    may have come later, and may be the last that run. In any other object Kubernetes retries single pods: as long as it
    has not ended, their next attempts are in it. Tasks that a person retries later are alone, if the object is ours."""
    newest = max(each.attempt.number for each in live)
    if is_one_attempt(spec) or spec.elastic:
        return {UnitKey(Scope.WHOLE, max(facts.attempt, newest)): list(live)}
    if standing is not None:
        return {UnitKey(Scope.WHOLE, standing): list(live)}
    if not facts.is_fresh and len(live) < spec.size and not spec.manifest and not spec.kind:
        return {UnitKey(Scope.TASK, each.attempt.number, each.attempt.task): [each] for each in live}
    return {UnitKey(Scope.WHOLE, newest): list(live)}


def runs_in(array: Object, live: LiveAttempt) -> bool:
    """Does the Indexed Job still have something to do with this attempt? It does if its pod is there, or will be."""
    if live.is_running:
        return live.unit.startswith(f"{array['metadata']['name']}-")
    if KINDS["Job"].meaning(array).state in (State.SUCCEEDED, State.FAILED):
        return False
    status = array.get("status", {})
    return not is_within(live.attempt.task, status.get("failedIndexes") or "")


def is_within(index: int, ranges: str) -> bool:
    """`1,3-5`: how Kubernetes writes indexes."""
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        if int(first) <= index <= int(last or first):
            return True
    return False


def pods_by_attempt(
    spec: JobSpec,
    kind: Kind,
    live: Iterable[LiveAttempt],
    pods: Iterable[Object],
    gone: Mapping[str, Object],
    ended: int = 0,
) -> dict[LiveAttempt, Object]:
    """The pod of each attempt that has one. A running attempt keeps its pod; one that waits gets the next of its task
    after the pod of the attempt before. Where pods do not tell their task, it gets the first that is
    free, behind those of the `ended` tasks."""
    by_task: dict[int, list[Object]] = {}
    nameless: list[Object] = []
    by_name: dict[str, Object] = {}
    for pod in sorted(pods, key=_age):
        by_name[pod["metadata"]["name"]] = pod
        number = kind.task_of(spec, pod)
        if number is None:
            nameless.append(pod)
        else:
            by_task.setdefault(number, []).append(pod)
    found: dict[LiveAttempt, Object] = {}
    waiting: list[LiveAttempt] = []
    for each in live:
        if each.is_running:
            if own_pod := by_name.get(each.unit) or gone.get(each.unit):
                found[each] = own_pod
        else:
            own = by_task.get(each.attempt.task, [])
            if next_pod := _next(own, each.unit, by_name.get(each.unit) or gone.get(each.unit)):
                found[each] = next_pod
            elif not own:
                waiting.append(each)
    if not (waiting and nameless):
        return found
    taken = {pod["metadata"]["name"] for pod in found.values()} | {each.unit for each in waiting}
    over = {**gone, **{pod["metadata"]["name"]: pod for pod in nameless if is_over(pod)}}
    taken |= {*sorted(over.keys() - taken, key=lambda name: _age(over[name]))[:ended]}
    free = [pod for pod in nameless if pod["metadata"]["name"] not in taken]
    found.update(zip(waiting, free, strict=False))
    return found


def _next(pods: Sequence[Object], unit: str, before: Object | None) -> Object | None:
    """The first of these after `before`, which is the pod `unit`; the newest, where that is known by name alone."""
    if not unit:
        return pods[0] if pods else None
    if before is not None:
        return next((pod for pod in pods if _age(pod) > _age(before)), None)
    return pods[-1] if pods else None


def _age(pod: Object) -> tuple[str, str]:
    return pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]


def with_memory(spec: JobSpec, live: Iterable[LiveAttempt]) -> JobSpec:
    """With what the yard grants each group now: one that ran out of memory gets more than it asked for."""
    granted: dict[int, int] = {}
    for each in live:
        granted[each.slot.group] = max(granted.get(each.slot.group, 0), each.slot.placement.resources.memory_mib)
    groups = tuple(
        replace(group, resources=replace(group.resources, memory_mib=granted[index]))
        if granted.get(index, 0) > group.resources.memory_mib > 0
        else group
        for index, group in enumerate(spec.groups)
    )
    return spec if groups == spec.groups else replace(spec, groups=groups)


def kind_of_unit(spec: JobSpec, key: UnitKey) -> Kind:
    return KINDS["Job"] if key.scope is not Scope.WHOLE else kind_of(spec)
