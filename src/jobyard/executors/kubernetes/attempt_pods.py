"""Pods of attempts: which pod is which attempt? Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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
    seen = _seen(spec, kind, pods, gone)
    found: dict[LiveAttempt, Object] = {}
    waiting: list[LiveAttempt] = []
    for each in live:
        pod = seen.named(each.pod) if each.is_running else seen.numbered(each) or seen.next_of(each)
        if pod is not None:
            found[each] = pod
        elif not each.is_running and not seen.of_task(each):
            waiting.append(each)
    if waiting and seen.nameless:
        taken = {*(pod["metadata"]["name"] for pod in found.values()), *(each.pod for each in waiting)}
        found.update(zip(waiting, seen.free(taken, ended), strict=False))
    return found


class _SeenPods(NamedTuple):
    """Those of one object, the older ones first."""

    by_name: Mapping[str, Object]
    by_task: Mapping[int, list[Object]]
    by_number: Mapping[tuple[int, int], Object]  # task and attempt
    nameless: Sequence[Object]  # they do not tell their task
    gone: Mapping[str, Object]
    knows_attempts: bool

    def named(self, name: str) -> Object | None:
        return self.by_name.get(name) or self.gone.get(name)

    def numbered(self, each: LiveAttempt) -> Object | None:
        """The pod with the number of this attempt, unless that is the one it had before."""
        pod = self.by_number.get((each.attempt.task, each.attempt.number))
        return pod if pod is not None and pod["metadata"]["name"] != each.pod else None

    def next_of(self, each: LiveAttempt) -> Object | None:
        return _next(self.of_task(each), each.pod, self.named(each.pod))

    def of_task(self, each: LiveAttempt) -> list[Object]:
        """Those that this attempt may have."""
        own = self.by_task.get(each.attempt.task, [])
        if self.named(each.pod) is None and self.knows_attempts:  # then only numbers tell whose it was
            return [pod for pod in own if not (is_over(pod) and 0 < number_of(pod) < each.attempt.number)]
        return own

    def free(self, taken: set[str], ended: int) -> list[Object]:
        """Of those that do not tell their task: neither taken, nor of one of the tasks that have ended."""
        over = {**self.gone, **{pod["metadata"]["name"]: pod for pod in self.nameless if is_over(pod)}}
        taken = taken | {*sorted(over.keys() - taken, key=lambda name: _age(over[name]))[:ended]}
        return [pod for pod in self.nameless if pod["metadata"]["name"] not in taken]


def _seen(spec: JobSpec, kind: Kind, pods: Iterable[Object], gone: Mapping[str, Object]) -> _SeenPods:
    by_name: dict[str, Object] = {}
    by_task: dict[int, list[Object]] = {}
    nameless: list[Object] = []
    for pod in sorted(pods, key=_age):
        by_name[pod["metadata"]["name"]] = pod
        task = task_of(spec, kind, pod)
        (nameless if task is None else by_task.setdefault(task, [])).append(pod)
    by_number = _pods_by_number(spec, kind, [*gone.values(), *by_name.values()])
    return _SeenPods(by_name, by_task, by_number, nameless, gone, knows_attempts(spec))


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
