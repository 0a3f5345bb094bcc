"""Raw object: what is sent of an object that a user wrote? Itself, with a name, labels, the wait for admission, and how
long it stays after its end, where it does not say so itself.

Where requests and limits of `nvidia.com/gpu` differ they mean a range, and what the pods are told of their GPUs is
written anew for each size, as the GenAI workload manager does it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from jobyard.errors import UserError
from jobyard.executors.kubernetes import names, pytorchjob, rayjob
from jobyard.executors.kubernetes.kinds import kind_of
from jobyard.executors.kubernetes.pods import KEPT_SECONDS, amounts
from jobyard.executors.protocol import SubmittedJob
from jobyard.kubernetes.gpus import give_gpus
from jobyard.model.job import JobSpec
from jobyard.model.ray import DEFAULT_SUBMITTER
from jobyard.model.training import Size

Object = dict[str, Any]
# On the object, for those who know them from the GenAI workload manager.
REPLICAS, REQUEST, LIMIT = "replicas", "request", "limit"
# Where each kind says how long it stays. A Pod cannot, and that of a RayJob is about its cluster, which holds GPUs.
_KEPT = {
    "Job": ("spec", "ttlSecondsAfterFinished"),
    "JobSet": ("spec", "ttlSecondsAfterFinished"),
    "PyTorchJob": ("spec", "runPolicy", "ttlSecondsAfterFinished"),
}
_NAMES: dict[str, Callable[[SubmittedJob, int], str]] = {
    "Job": names.job_object_name,
    "JobSet": names.jobset_object_name,
    "PyTorchJob": pytorchjob.object_name,
    "RayJob": rayjob.object_name,
    "Pod": names.gang_object_name,
}


def raw_object(job: SubmittedJob, attempt: int, site: names.Site, size: Size | None = None) -> Object:
    """The user's object as one attempt of the job. Raises UserError where it names another namespace."""
    spec, kind = job.spec, kind_of(job.spec)
    made: Object = json.loads(spec.kubernetes.manifest)
    if spec.elastic is not None and spec.elastic.gpus:
        made = resized(made, spec, size.gpus if size is not None else spec.groups[0].resources.gpus)
    if kind.name == "RayJob":
        _write_out_submitter(made["spec"])
    name = _NAMES[kind.name](job, attempt)
    made["metadata"] = _metadata(made["metadata"], name, job, attempt, site)
    for template in templates_of(made):
        metadata = without_ours(template.get("metadata") or {})
        labels = _labels(job, attempt, site) | {names.OBJECT: name}
        template["metadata"] = {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}
    if kind.name in _KEPT and _get(made, _KEPT[kind.name]) is None:
        _set(made, _KEPT[kind.name], KEPT_SECONDS)
    if kind.is_suspendable:
        _set(made, kind.suspend, True)
    elif not site.queue:  # there, Kueue has a gate of its own
        gates = made["spec"].get("schedulingGates") or []
        made["spec"]["schedulingGates"] = [*gates, {"name": names.ADMISSION_GATE}]
    return made


def without_ours(metadata: Object) -> Object:
    """By such labels and annotations the yard finds its own again: nobody else may set them."""
    cleaned = {
        key: {name: value for name, value in metadata[key].items() if not name.startswith(names.PREFIX)}
        for key in ("labels", "annotations")
        if metadata.get(key)
    }
    return {**metadata, **cleaned}


def templates_of(manifest: Object) -> list[Object]:
    """Everything in an object that pods are made of; a Pod is its own."""
    spec = manifest["spec"]
    match manifest["kind"]:
        case "Pod":
            return [manifest]
        case "Job":
            return [spec["template"]]
        case "JobSet":
            return [each["template"]["spec"]["template"] for each in spec["replicatedJobs"]]
        case "PyTorchJob":
            return [each["template"] for each in spec["pytorchReplicaSpecs"].values()]
        case _:
            cluster = spec["rayClusterSpec"]
            groups = [cluster["headGroupSpec"], *(cluster.get("workerGroupSpecs") or [])]
            submitter = spec.get("submitterPodTemplate")
            return [*(each["template"] for each in groups), *([submitter] if submitter else [])]


def resized(manifest: Object, spec: JobSpec, gpus: int) -> Object:
    """A copy with so many GPUs in each pod, which says its range to those who look there."""
    made: Object = json.loads(json.dumps(manifest))
    assert spec.elastic is not None
    assert spec.elastic.gpus is not None
    for template in templates_of(made):
        give_gpus(template["spec"], gpus)
    low, high = spec.elastic.gpus
    annotations = {REPLICAS: str(spec.size), REQUEST: str(low), LIMIT: str(high)}
    metadata = made["metadata"]
    made["metadata"] = {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}}
    return made


def _write_out_submitter(spec: Object) -> None:
    """The pod that hands the command in, whose output is the job's: as KubeRay would make it, so that it has labels."""
    if spec.get("submitterPodTemplate") or spec.get("submissionMode", "K8sJobMode") != "K8sJobMode":
        return
    head = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": amounts(DEFAULT_SUBMITTER)}
    container = {"name": "ray-job-submitter", "image": head["image"], "resources": resources}
    spec["submitterPodTemplate"] = {"spec": {"containers": [container], "restartPolicy": "Never"}}


def _metadata(written: Object, name: str, job: SubmittedJob, attempt: int, site: names.Site) -> Object:
    namespace = written.get("namespace")
    if namespace and site.namespace and namespace != site.namespace:
        raise UserError(
            f"job {job.spec.name!r}: its manifest is for the namespace {namespace!r}, and the yard works in"
            f" {site.namespace!r} of this cluster; remove metadata.namespace, or add the cluster with that namespace"
        )
    written = without_ours(written)
    labels = {**(written.get("labels") or {}), **_labels(job, attempt, site)}
    if site.queue:
        labels[names.QUEUE] = site.queue
    kept = {key: value for key, value in written.items() if key not in ("name", "generateName", "namespace", "labels")}
    where = site.namespace or namespace
    return {"name": name, **({"namespace": where} if where else {}), "labels": labels, **kept}


def _labels(job: SubmittedJob, attempt: int, site: names.Site) -> dict[str, str]:
    labels = names.labels_of(job, attempt, yard=site.yard)
    return {key: value for key, value in labels.items() if key.startswith(names.PREFIX)}


def _get(made: Object, path: tuple[str, ...]) -> object:
    """None where it is not said, or said to be nothing."""
    inside: Any = made
    for key in path:
        inside = (inside or {}).get(key)
    return inside


def _set(made: Object, path: tuple[str, ...], value: object) -> None:
    inside = made
    for key in path[:-1]:
        inside[key] = inside.get(key) or {}
        inside = inside[key]
    inside[path[-1]] = value
