"""Pods of attempts: which pod is which attempt? Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobyard.executors.kubernetes import names
from jobyard.executors.kubernetes.kinds import KINDS, Kind
from jobyard.executors.kubernetes.object_keys import knows_attempts
from jobyard.executors.protocol import LiveAttempt
from jobyard.kubernetes.labels import INDEX_FAILURES, INDEX_REPLACED
from jobyard.kubernetes.states import is_over
from jobyard.model.job import JobSpec

Object = dict[str, Any]


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
            if own_pod := by_name.get(each.pod) or gone.get(each.pod):
                found[each] = own_pod
        elif numbered is not None and numbered["metadata"]["name"] != each.pod:
            found[each] = numbered
        else:
            before = by_name.get(each.pod) or gone.get(each.pod)
            own = by_task.get(each.attempt.task, [])
            if before is None and knows_attempts(spec):  # then only numbers tell whose it was
                own = [pod for pod in own if not (is_over(pod) and 0 < number_of(pod) < each.attempt.number)]
            if next_pod := _next(own, each.pod, before):
                found[each] = next_pod
            elif not own:
                waiting.append(each)
    if not (waiting and nameless):
        return found
    taken = {pod["metadata"]["name"] for pod in found.values()} | {each.pod for each in waiting}
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


def _next(pods: Sequence[Object], earlier: str, before: Object | None) -> Object | None:
    """The first of these after `before`, which is the pod `earlier`; the newest, where only that name is known."""
    if not earlier:
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
