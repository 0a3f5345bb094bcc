"""Units: which objects should there be for the live attempts, and which pod is which attempt? Pure.

An array is one Indexed Job for all its tasks, and groups are one JobSet. Kubernetes takes their tasks in order, and
replaces single pods by itself: each new pod of an index is the task's next attempt. A gang, and what a user wrote, is
one object for each attempt of the whole. A task whose array or JobSet is over, as after `yard retry`, has a Job of its
own: what has ended stays ended, and what runs is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any

from jobyard.executors.kubernetes import names
from jobyard.executors.kubernetes.kinds import KINDS, Kind, kind_of
from jobyard.executors.kubernetes.manifest import is_one_attempt
from jobyard.executors.protocol import JobFacts, LiveAttempt
from jobyard.kubernetes.labels import INDEX_FAILURES, INDEX_REPLACED
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
    with_pod: Mapping[LiveAttempt, UnitKey] = MappingProxyType({}),
) -> dict[UnitKey, list[LiveAttempt]]:
    """The objects that should be there, each with the attempts that it runs.

    `array` is the Indexed Job that there is, `standing` the attempt of the newest object of all tasks that has not
    ended; `has_succeeded` says of a pod that it did; `with_pod` are attempts that wait, and have a pod in this object.
    """
    if not live:
        return {}
    newest = max(each.attempt.number for each in live)
    if is_one_attempt(spec) or spec.elastic:
        # Its first task is in all its objects, and so its attempt is theirs: others may have come later, and may be
        # the last that run.
        return {UnitKey(Scope.WHOLE, max(facts.attempt, newest)): list(live)}
    if not is_ours(spec):
        return {UnitKey(Scope.WHOLE, newest if standing is None else standing): list(live)}
    whole = _whole_of_array(facts, array) if is_array(spec) else _whole_of_groups(spec, live, facts, standing)
    units: dict[UnitKey, list[LiveAttempt]] = {}
    for each in live:
        alone = UnitKey(Scope.TASK, each.attempt.number, each.attempt.task)
        key = _key_of_pod(spec, each) if each.is_running else with_pod.get(each)
        if key is None:
            is_again = not each.is_running and has_succeeded(each.unit)  # a person wants it once more
            is_inside = whole is not None and not is_again and (array is None or runs_in(array, each))
            key = whole if whole is not None and is_inside else alone
        units.setdefault(key, []).append(each)
    return units


def is_ours(spec: JobSpec) -> bool:
    """Is the object written by us, so that one of its tasks can have a Job of its own?"""
    return not spec.kubernetes.manifest and not kind_of(spec).by_object


def knows_attempts(spec: JobSpec) -> bool:
    """Is the number that a pod has that of its task's attempt? Whoever joins a gang late is at its first."""
    return is_ours(spec) and not is_one_attempt(spec) and not spec.elastic


def _whole_of_array(facts: JobFacts, array: Object | None) -> UnitKey | None:
    return UnitKey(Scope.ARRAY, ARRAY_ATTEMPT) if array is not None or facts.is_fresh else None


def _whole_of_groups(
    spec: JobSpec, live: Sequence[LiveAttempt], facts: JobFacts, standing: int | None
) -> UnitKey | None:
    """The JobSet in which tasks that wait are begun; None: they are alone. Another is made for all tasks at once alone,
    and with one number for all: it is what each pod is told."""
    if standing is not None:
        return UnitKey(Scope.WHOLE, standing)
    numbers = {each.attempt.number for each in live if not each.is_running}
    is_whole = len(live) == spec.size and len(numbers) == 1 and not any(each.is_running for each in live)
    return UnitKey(Scope.WHOLE, max(numbers)) if numbers and (facts.is_fresh or is_whole) else None


def _key_of_pod(spec: JobSpec, live: LiveAttempt) -> UnitKey | None:
    """The object that its pod was made by, as the pod's name tells; None: it has a name of another kind."""
    found = re.search(rf"-{re.escape(live.attempt.job)}(?:-t(\d+))?-a(\d+)-", live.unit)
    if found is None:
        return None
    task, number = found.groups()
    if task is not None:
        return UnitKey(Scope.TASK, int(number), int(task))
    return UnitKey(Scope.ARRAY if is_array(spec) else Scope.WHOLE, int(number))


def runs_in(array: Object, live: LiveAttempt) -> bool:
    """Does the Indexed Job still have something to do with this attempt? It does if its pod is there, or will be."""
    if live.is_running:
        return live.unit.startswith(f"{array['metadata']['name']}-")
    status = array.get("status", {})
    if not live.unit and is_within(live.attempt.task, status.get("completedIndexes") or ""):
        return True  # and its pod was not heard of
    if KINDS["Job"].meaning(array).state in (State.SUCCEEDED, State.FAILED):
        return False
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
    """The pod of each attempt that has one. A running attempt keeps its pod; one that waits gets that with its number,
    or the next of its task after the pod of the attempt before. Where pods do not tell their task, it gets the first
    that is free, behind those of the `ended` tasks."""
    by_task: dict[int, list[Object]] = {}
    nameless: list[Object] = []
    by_name: dict[str, Object] = {}
    for pod in sorted(pods, key=_age):
        by_name[pod["metadata"]["name"]] = pod
        task = task_of(spec, kind, pod)
        if task is None:
            nameless.append(pod)
        else:
            by_task.setdefault(task, []).append(pod)
    by_number = _pods_by_number(spec, kind, [*gone.values(), *by_name.values()])
    found: dict[LiveAttempt, Object] = {}
    waiting: list[LiveAttempt] = []
    for each in live:
        numbered = by_number.get((each.attempt.task, each.attempt.number))
        if each.is_running:
            if own_pod := by_name.get(each.unit) or gone.get(each.unit):
                found[each] = own_pod
        elif numbered is not None and numbered["metadata"]["name"] != each.unit:
            found[each] = numbered
        else:
            before = by_name.get(each.unit) or gone.get(each.unit)
            own = by_task.get(each.attempt.task, [])
            if before is None and knows_attempts(spec):  # then only numbers tell whose it was
                own = [pod for pod in own if not (is_over(pod) and 0 < number_of(pod) < each.attempt.number)]
            if next_pod := _next(own, each.unit, before):
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


def _pods_by_number(spec: JobSpec, kind: Kind, pods: Iterable[Object]) -> dict[tuple[int, int], Object]:
    """By task and attempt, where an object of ours says both; of two the later one."""
    found: dict[tuple[int, int], Object] = {}
    for pod in pods if knows_attempts(spec) else ():
        if (task := task_of(spec, kind, pod)) is not None and (number := number_of(pod)):
            found[task, number] = pod
    return found


def task_of(spec: JobSpec, kind: Kind, pod: Object) -> int | None:
    """`kind` is that of the object of all tasks; the pod may be of a Job that is one of them."""
    own = KINDS["Job"] if names.TASK in (pod["metadata"].get("labels") or {}) else kind
    return own.task_of(spec, pod)


def number_of(pod: Object) -> int:
    """The attempt that a pod takes itself for; 0: it does not know."""
    number = int((pod["metadata"].get("labels") or {}).get(names.ATTEMPT) or 0)
    return number and number + pods_before(pod)


def _next(pods: Sequence[Object], unit: str, before: Object | None) -> Object | None:
    """The first of these after `before`, which is the pod `unit`; the newest, where that is known by name alone."""
    if not unit:
        return pods[0] if pods else None
    if before is not None:
        return next((pod for pod in pods if _age(pod) > _age(before)), None)
    return pods[-1] if pods else None


def _age(pod: Object) -> tuple[str, int, str]:
    """Kubernetes tells whole seconds: of two pods of one task the later one has more before it."""
    metadata = pod["metadata"]
    return metadata.get("creationTimestamp", ""), pods_before(pod), metadata["name"]


def pods_before(pod: Object) -> int:
    """How many pods of the same index Kubernetes has replaced."""
    annotations = pod["metadata"].get("annotations") or {}
    return sum(int(annotations.get(key) or 0) for key in (INDEX_FAILURES, INDEX_REPLACED))


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
