"""Kinds of objects: where is each, how does it wait, which pods are its tasks, and what does its status say?

One table, KINDS. Pure: no cluster is asked; `tests/cluster/test_manifests.py` holds it against a real API server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jobyard.executors.kubernetes import states
from jobyard.executors.kubernetes.names import ADMISSION_GATE, OBJECT, TASK, kind_name
from jobyard.executors.kubernetes.states import Meaning
from jobyard.kubernetes.labels import POD_OF_PYTORCHJOB
from jobyard.kubernetes.paths import RESOURCES, object_path
from jobyard.model.executor_kinds import object_kind
from jobyard.model.job import GroupSpec, JobSpec
from jobyard.model.units import whole_number

Object = Mapping[str, Any]

HEAD = "head"  # the group of a RayJob's head
MASTER = "master"  # the group of the Master of a PyTorchJob that a user wrote


@dataclass(frozen=True)
class Kind:
    """One kind of object. `suspend` is the path of the flag that makes it wait; a Pod has gates instead."""

    name: str
    api_version: str
    plural: str
    operator: str  # what must be installed for it; empty: Kubernetes itself has it
    suspend: tuple[str, ...]
    pods_label: str  # its pods have the object's name in this label
    find_task: Callable[[JobSpec, Mapping[str, str]], int | None]
    meaning: Callable[[Object], Meaning]
    by_object: bool = False  # how all tasks ended is told by the object, not by each pod

    @property
    def group(self) -> str:
        """The API group; empty for the core one. With `plural`, it is what permissions are given for."""
        return self.api_version.rpartition("/")[0]

    def collection(self, namespace: str) -> str:
        """The path in the API."""
        return object_path(self.api_version, self.plural, namespace)

    def task_of(self, spec: JobSpec, pod: Object) -> int | None:
        """Which task of the job the pod is; None: the pod does not tell, or it is none."""
        metadata = pod.get("metadata", {})
        labels = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
        number = self.find_task(spec, labels)
        return number if number is not None and 0 <= number < spec.size else None

    @property
    def is_suspendable(self) -> bool:
        return bool(self.suspend)

    def is_waiting(self, seen: Object) -> bool:
        """Is it still to be admitted?"""
        if not self.suspend:
            return ADMISSION_GATE in _gates(seen)
        value: Any = seen
        for key in self.suspend:
            value = (value or {}).get(key)
        return value is True

    def admission(self, seen: Object) -> dict[str, Any]:
        """The merge patch that lets it in."""
        if not self.suspend:
            others = [{"name": gate} for gate in _gates(seen) if gate != ADMISSION_GATE]
            return {"spec": {"schedulingGates": others}}
        return self.suspended(False)

    def suspended(self, flag: bool) -> dict[str, Any]:
        """The merge patch of the flag. A Pod has none: it can only be deleted."""
        patch: Any = flag
        for key in reversed(self.suspend):
            patch = {key: patch}
        assert isinstance(patch, dict)
        return patch


def merged(seen: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """As the API server merges a patch."""
    new = {
        key: merged(seen.get(key) or {}, value) if isinstance(value, dict) else value for key, value in patch.items()
    }
    return {**seen, **new}


def kind_of(spec: JobSpec) -> Kind:
    """Of the object that a job becomes. Raises UserError as `object_kind` does."""
    return KINDS[object_kind(spec)]


def _gates(pod: Object) -> list[str]:
    return [gate["name"] for gate in pod.get("spec", {}).get("schedulingGates") or []]


_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def _task_of_job(spec: JobSpec, labels: Mapping[str, str]) -> int | None:
    """Also of a Job of one task, which has the task's number on it."""
    return _number(labels, TASK, _number(labels, _COMPLETION_INDEX))


def _task_of_jobset(spec: JobSpec, labels: Mapping[str, str]) -> int | None:
    group = _group(spec, lambda each: kind_name(each) == labels.get("jobset.sigs.k8s.io/replicatedjob-name"))
    replica = _number(labels, "jobset.sigs.k8s.io/job-index")
    completion = _number(labels, _COMPLETION_INDEX)
    if group is None or replica is None or completion is None:
        return None
    inside = spec.groups[group]
    fits = replica < inside.count and completion < inside.completions
    return spec.offsets[group] + replica * inside.completions + completion if fits else None


def _task_of_pytorchjob(spec: JobSpec, labels: Mapping[str, str]) -> int | None:
    """Ours has one group, and the master is its first task; one that a user wrote has a group for each type."""
    kind = labels.get("training.kubeflow.org/replica-type", "").lower()
    index = _number(labels, "training.kubeflow.org/replica-index")
    if index is None or not kind:
        return None
    if not spec.kubernetes.manifest:
        return index if kind == MASTER else index + 1
    group = _group(spec, lambda each: each.name == kind)
    return spec.offsets[group] + index if group is not None and index < spec.groups[group].count else None


def _task_of_rayjob(spec: JobSpec, labels: Mapping[str, str]) -> int | None:
    """A worker tells its index only where the operator counts them; the submitter is no task."""
    node = labels.get("ray.io/node-type")
    name = HEAD if node == "head" else labels.get("ray.io/group") if node == "worker" else None
    group = _group(spec, lambda each: each.name == name)
    index = 0 if node == "head" else _number(labels, "ray.io/worker-group-replica-index")
    if group is None or index is None or index >= spec.groups[group].count:
        return None
    return spec.offsets[group] + index


def _task_of_pod(spec: JobSpec, labels: Mapping[str, str]) -> int | None:
    return 0


def _group(spec: JobSpec, is_it: Callable[[GroupSpec], bool]) -> int | None:
    return next((index for index, group in enumerate(spec.groups) if is_it(group)), None)


def _number(labels: Mapping[str, str], key: str, default: int | None = None) -> int | None:
    number = whole_number(labels.get(key, ""))
    return default if number is None else number


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "Job",
            *RESOURCES["Job"],
            "",
            ("spec", "suspend"),
            "batch.kubernetes.io/job-name",
            _task_of_job,
            states.meaning_of_job,
        ),
        Kind(
            "JobSet",
            *RESOURCES["JobSet"],
            "JobSet (https://jobset.sigs.k8s.io)",
            ("spec", "suspend"),
            "jobset.sigs.k8s.io/jobset-name",
            _task_of_jobset,
            states.meaning_of_jobset,
        ),
        Kind(
            "PyTorchJob",
            *RESOURCES["PyTorchJob"],
            "the Kubeflow training operator v1 (https://github.com/kubeflow/training-operator)",
            ("spec", "runPolicy", "suspend"),
            POD_OF_PYTORCHJOB,
            _task_of_pytorchjob,
            states.meaning_of_pytorchjob,
            by_object=True,
        ),
        Kind(
            "RayJob",
            *RESOURCES["RayJob"],
            "the KubeRay operator (https://docs.ray.io/en/latest/cluster/kubernetes)",
            ("spec", "suspend"),
            OBJECT,  # its pods have the name of a RayCluster that the operator makes up
            _task_of_rayjob,
            states.meaning_of_rayjob,
            by_object=True,
        ),
        Kind(
            "Pod",
            *RESOURCES["Pod"],
            "",
            (),
            OBJECT,
            _task_of_pod,
            states.meaning_of_pod,
        ),
    )
}
