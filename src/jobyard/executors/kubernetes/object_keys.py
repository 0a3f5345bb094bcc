"""Object keys: which objects should there be for the live attempts? Pure.

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

from jobyard.executors.kubernetes.kinds import KINDS, Kind, kind_of
from jobyard.executors.protocol import JobFacts, LiveAttempt
from jobyard.model.job import JobSpec, State

Object = dict[str, Any]
ARRAY_ATTEMPT = 1  # the Indexed Job of an array has the number of its first attempts


class Scope(Enum):
    ARRAY = "all tasks, also those whose turn has not come"
    WHOLE = "one attempt of all tasks"
    TASK = "one attempt of one task"


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """`number` is the attempt in the object's name; `task` counts only in a TASK."""

    scope: Scope
    number: int
    task: int = -1


def is_array(spec: JobSpec) -> bool:
    return not (spec.is_one_attempt or spec.elastic or spec.is_one_object)


def attempts_by_object(
    spec: JobSpec,
    live: Sequence[LiveAttempt],
    facts: JobFacts,
    array: Object | None,
    standing: int | None = None,
    has_succeeded: Callable[[str], bool] = lambda pod: False,
    with_pod: Mapping[LiveAttempt, ObjectKey] = MappingProxyType({}),
) -> dict[ObjectKey, list[LiveAttempt]]:
    """The objects that should be there, each with the attempts that it runs.

    `array` is the Indexed Job that there is, `standing` the attempt of the newest object of all tasks that has not
    ended; `has_succeeded` says of a pod that it did; `with_pod` are attempts that wait, and have a pod in this object.
    """
    if not live:
        return {}
    newest = max(each.attempt.number for each in live)
    if spec.is_one_attempt or spec.elastic:
        # Its first task is in all its objects, and so its attempt is theirs: others may have come later, and may be
        # the last that run.
        return {ObjectKey(Scope.WHOLE, max(facts.attempt, newest)): list(live)}
    if not is_ours(spec):
        return {ObjectKey(Scope.WHOLE, newest if standing is None else standing): list(live)}
    whole = _whole_of_array(facts, array) if is_array(spec) else _whole_of_groups(spec, live, facts, standing)
    found: dict[ObjectKey, list[LiveAttempt]] = {}
    for each in live:
        alone = ObjectKey(Scope.TASK, each.attempt.number, each.attempt.task)
        key = _key_of_pod(spec, each) if each.is_running else with_pod.get(each)
        if key is None:
            is_again = not each.is_running and has_succeeded(each.pod)  # a person wants it once more
            is_inside = whole is not None and not is_again and (array is None or runs_in(array, each))
            key = whole if whole is not None and is_inside else alone
        found.setdefault(key, []).append(each)
    return found


def is_ours(spec: JobSpec) -> bool:
    """Is the object written by us, so that one of its tasks can have a Job of its own?"""
    return not spec.kubernetes.manifest and not kind_of(spec).by_object


def knows_attempts(spec: JobSpec) -> bool:
    """Is the number that a pod has that of its task's attempt? Whoever joins a gang late is at its first."""
    return is_ours(spec) and not spec.is_one_attempt and not spec.elastic


def _whole_of_array(facts: JobFacts, array: Object | None) -> ObjectKey | None:
    return ObjectKey(Scope.ARRAY, ARRAY_ATTEMPT) if array is not None or facts.is_fresh else None


def _whole_of_groups(
    spec: JobSpec, live: Sequence[LiveAttempt], facts: JobFacts, standing: int | None
) -> ObjectKey | None:
    """The JobSet in which tasks that wait are begun; None: they are alone. Another is made for all tasks at once alone,
    and with one number for all: it is what each pod is told."""
    if standing is not None:
        return ObjectKey(Scope.WHOLE, standing)
    numbers = {each.attempt.number for each in live if not each.is_running}
    is_whole = len(live) == spec.size and len(numbers) == 1 and not any(each.is_running for each in live)
    return ObjectKey(Scope.WHOLE, max(numbers)) if numbers and (facts.is_fresh or is_whole) else None


def _key_of_pod(spec: JobSpec, live: LiveAttempt) -> ObjectKey | None:
    """The object that its pod was made by, as the pod's name tells; None: it has a name of another kind."""
    found = re.search(rf"-{re.escape(live.attempt.job)}(?:-t(\d+))?-a(\d+)-", live.pod)
    if found is None:
        return None
    task, number = found.groups()
    if task is not None:
        return ObjectKey(Scope.TASK, int(number), int(task))
    return ObjectKey(Scope.ARRAY if is_array(spec) else Scope.WHOLE, int(number))


def runs_in(array: Object, live: LiveAttempt) -> bool:
    """Does the Indexed Job still have something to do with this attempt? It does if its pod is there, or will be."""
    if live.is_running:
        return live.pod.startswith(f"{array['metadata']['name']}-")
    status = array.get("status", {})
    if not live.pod and is_within(live.attempt.task, status.get("completedIndexes") or ""):
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


def kind_of_object(spec: JobSpec, key: ObjectKey) -> Kind:
    return KINDS["Job"] if key.scope is not Scope.WHOLE else kind_of(spec)
