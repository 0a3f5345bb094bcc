"""Manifest of an attempt: which Kubernetes objects is it? Pure: no cluster is asked."""

from __future__ import annotations

import math
from typing import Any

from jobyard.agent_protocol.exit_codes import PREEMPTED_EXIT_CODE
from jobyard.errors import UserError
from jobyard.executors.kubernetes import pytorchjob, rayjob
from jobyard.executors.kubernetes.kinds import KINDS, kind_of
from jobyard.executors.kubernetes.names import (
    QUEUE,
    QUEUE_LEAST,
    TASK,
    Site,
    annotations_of,
    job_object_name,
    jobset_object_name,
    kind_name,
    labels_of,
    task_object_name,
)
from jobyard.executors.kubernetes.pods import KEPT_SECONDS, TABLES, pod_template
from jobyard.executors.kubernetes.raw import raw_object
from jobyard.executors.kubernetes.reporting import sdk_map
from jobyard.executors.kubernetes.tables import files_of, tables_of
from jobyard.executors.kubernetes.variables import Pod
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.executor_kinds import needs_jobset
from jobyard.model.job import GroupSpec, JobSpec
from jobyard.model.training import Size

Object = dict[str, Any]
JOB_API = KINDS["Job"].api_version
JOBSET_API = KINDS["JobSet"].api_version
# What the API server allows in an Indexed Job with a limit of retries per index, unless a limit of failed indexes is
# given too: kubernetes 1.36, pkg/apis/batch/validation, completionsSoftLimit.
COMPLETIONS_MOST = 100_000
LOST_MOST = 6  # pods of one task that are deleted by hand before its JobSet ends: Kubernetes' own limit for a Job
SIGNALLED = (137, 143)  # how a shell and the container runtime tell of SIGKILL and SIGTERM


def objects_of(
    job: SubmittedJob,
    attempt: int,
    namespace: str = "",
    size: Size | None = None,
    resumes_at: int | None = None,
    *,
    yard_id: str = "",
    storage: str = "",
    queue: str = "",
) -> list[Object]:
    """The object, waiting to be admitted, then what it owns: create them in this order, `owned` by the first.

    `size` is that of an elastic job, `resumes_at` the epochs that its checkpoint covers; `storage` is a claim for
    checkpoints and results, `queue` one of Kueue's. Raises UserError with one sentence where Kubernetes cannot run it.
    """
    site = Site(namespace, yard_id, storage, queue)
    if job.spec.kubernetes.manifest:
        return [raw_object(job, attempt, site, size)]
    if size is not None:
        job = job._replace(spec=job.spec.sized(size))
    job = job._replace(spec=_without_shell(job.spec))
    spec, kind = job.spec, kind_of(job.spec).name
    _refuse(spec)
    name = _NAMES[kind](job, attempt)
    files = files_of(spec)
    pods = [
        Pod(
            job,
            attempt,
            index,
            name,
            kind,
            site,
            is_retried=is_retried_there(spec),
            tables=tables_of(spec, index),
            resumes_at=resumes_at,
        )
        for index in range(len(spec.groups))
    ]
    objects = [_MAKERS[kind](pods)]
    if files:
        objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-{TABLES}"}})
        objects[-1] |= {"immutable": True, "data": files}
    if spec.training is not None:
        objects.append(sdk_map(name))
    if spec.gang and spec.size > 1 and kind == "Job":
        objects.append(_service(job, attempt, name, site))
    return [_with_metadata(each, job, attempt, site) for each in objects]


def task_objects_of(
    job: SubmittedJob,
    number: int,
    attempt: int,
    namespace: str = "",
    *,
    yard_id: str = "",
    storage: str = "",
    queue: str = "",
    resumes_at: int | None = None,
) -> list[Object]:
    """A Job of one pod for one task whose array or JobSet is over; the pod finds nothing out, all is told it."""
    site = Site(namespace, yard_id, storage, queue)
    job = job._replace(spec=_without_shell(job.spec))
    _refuse(job.spec)
    name = task_object_name(job, number, attempt)
    group = job.spec.place_of(number).group
    pod = Pod(job, attempt, group, name, "Job", site, resumes_at=resumes_at, number=number)
    objects: list[Object] = [
        {"apiVersion": JOB_API, "kind": "Job", "metadata": {"name": name}, "spec": _task_spec(pod)}
    ]
    if job.spec.training is not None:
        objects.append(sdk_map(name))
    made = [_with_metadata(each, job, attempt, site) for each in objects]
    for each in made:
        each["metadata"]["labels"][TASK] = str(number)
    return made


def owned(child: Object, owner: Object) -> Object:
    """The child as it is sent once its owner is there and has a uid: it goes when the owner goes."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
    reference |= {"uid": owner["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}
    return {**child, "metadata": {**child["metadata"], "ownerReferences": [reference]}}


def is_retried_there(spec: JobSpec) -> bool:
    """Does Kubernetes replace single pods by itself? In an array only where that was asked for: otherwise the lost task
    gets a Job of its own, and a pod can be told its attempt without a shell."""
    return not spec.is_one_attempt and (spec.policy.retries > 0 or kind_of(spec).name == "JobSet")


def _task_spec(pod: Pod) -> Object:
    """Neither indexed nor retried: another attempt is another object."""
    found: Object = {
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "suspend": True,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
    }
    if pod.spec.policy.deadline_seconds is not None:
        found["activeDeadlineSeconds"] = math.ceil(pod.spec.policy.deadline_seconds)
    return {**found, "template": pod_template(pod)}


def _job(pods: list[Pod]) -> Object:
    (pod,) = pods
    kept = {"ttlSecondsAfterFinished": KEPT_SECONDS, "suspend": True}
    return {"apiVersion": JOB_API, "kind": "Job", "metadata": {"name": pod.name}, "spec": {**kept, **_job_spec(pod)}}


def _jobset(pods: list[Pod]) -> Object:
    """The groups stand in order of their names, and so JOB_GLOBAL_INDEX is the same as on machines."""
    return {
        "apiVersion": JOBSET_API,
        "kind": "JobSet",
        "metadata": {"name": pods[0].name},
        "spec": {
            "suspend": True,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "failurePolicy": {"maxRestarts": 0},
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "replicatedJobs": [
                {
                    "name": kind_name(pod.group),
                    "replicas": pod.group.count,
                    "template": {"spec": _job_spec(pod)},
                }
                for pod in pods
            ],
        },
    }


def _job_spec(pod: Pod) -> Object:
    spec, group = pod.spec, pod.group
    found: Object = {
        "completionMode": "Indexed",
        "completions": group.completions,
        "parallelism": _parallelism(spec, group),
        "backoffLimitPerIndex": _retries(pod),
        "podReplacementPolicy": "Failed",  # or two pods of one index run at once
    }
    if pod.is_jobset:
        found["maxFailedIndexes"] = 0
    if spec.policy.deadline_seconds is not None:
        found["activeDeadlineSeconds"] = math.ceil(spec.policy.deadline_seconds)
    if pod.is_retried:
        found["podFailurePolicy"] = {"rules": _rules(pod)}
    return {**found, "template": pod_template(pod)}


def _parallelism(spec: JobSpec, group: GroupSpec) -> int:
    at_once = min(group.completions, group.parallelism or group.completions)
    return at_once if spec.policy.limit is None or needs_jobset(spec) else min(at_once, spec.policy.limit)


def _retries(pod: Pod) -> int:
    """One pod that somebody deletes must not end a JobSet, and Kubernetes takes it for one that failed. A task that has
    failed for the last time is not begun anew before ten seconds: by then the yard has ended the whole."""
    if not pod.is_retried:
        return 0
    return pod.spec.policy.retries + (LOST_MOST if pod.is_jobset else 0)


def _rules(pod: Pod) -> list[Object]:
    """What is no failure of the task: a node that was drained or lost, and a stop at a checkpoint. And what is one for
    certain, where none is allowed: who ends by itself, with another code than one whose pod was deleted."""
    spec, container = pod.spec, kind_name(pod.group)
    rules: list[Object] = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    if spec.training is not None:
        codes = {"containerName": container, "operator": "In", "values": [PREEMPTED_EXIT_CODE]}
        rules.append({"action": "Ignore", "onExitCodes": codes})
    if not spec.policy.retries:
        codes = {"containerName": container, "operator": "NotIn", "values": list(SIGNALLED)}
        rules.append({"action": "FailIndex", "onExitCodes": codes})
    return rules


def _service(job: SubmittedJob, attempt: int, name: str, site: Site) -> Object:
    """Gives the tasks of a gang host names. One that is not ready has its name too: rank 0 is waited for by name."""
    labels = labels_of(job, attempt, yard=site.yard)
    selector = {key: value for key, value in labels.items() if key.startswith("jobyard.dev/")}
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _with_metadata(made: Object, job: SubmittedJob, attempt: int, site: Site) -> Object:
    labels, annotations = labels_of(job, attempt, yard=site.yard), annotations_of(job)
    if site.queue and made["kind"] in KINDS:
        labels[QUEUE] = site.queue
        if made["kind"] == "Job" and not job.spec.is_one_attempt and made["spec"].get("parallelism", 1) > 1:
            annotations[QUEUE_LEAST] = "1"  # tasks of an array do not wait for each other
    metadata: Object = {
        "name": made["metadata"]["name"],
        **({"namespace": site.namespace} if site.namespace else {}),
        "labels": labels,
        "annotations": annotations,
    }
    return {**made, "metadata": metadata}


_NAMES = {
    "Job": job_object_name,
    "JobSet": jobset_object_name,
    "PyTorchJob": pytorchjob.object_name,
    "RayJob": rayjob.object_name,
}
_MAKERS = {"Job": _job, "JobSet": _jobset, "PyTorchJob": pytorchjob.object_of, "RayJob": rayjob.object_of}


def _without_shell(spec: JobSpec) -> JobSpec:
    """The submitting shell's variables stay on its machine."""
    return spec.with_shell({})


def _refuse(spec: JobSpec) -> None:
    """What no single field is to blame for: those that a kind cannot do were refused by `field_support`."""
    named = f"job {spec.name!r}"
    if not spec.container.image:
        raise UserError(
            f"{named} has no image, and on Kubernetes every task runs in one; write image: in its manifest, or --image"
        )
    for group in spec.groups:
        if group.completions > COMPLETIONS_MOST:
            raise UserError(
                f"{named} has {group.completions} tasks, and Kubernetes takes {COMPLETIONS_MOST} in a Job; split it"
            )
