"""Which Kubernetes objects are one attempt of a job? Pure: no cluster is asked."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from jobyard.errors import UserError
from jobyard.executors.kubernetes.names import (
    annotations_of,
    job_object_name,
    jobset_object_name,
    kind_name,
    labels_of,
)
from jobyard.executors.kubernetes.pods import TABLES, pod_template
from jobyard.executors.kubernetes.tables import files_of, tables_of
from jobyard.executors.kubernetes.variables import Pod
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.job import FailurePolicy, GroupSpec, JobSpec
from jobyard.model.training import YIELD_EXIT_CODE, Size

Object = dict[str, Any]
JOB_API = "batch/v1"
JOBSET_API = "jobset.x-k8s.io/v1alpha2"
KEPT_SECONDS = 86400  # a finished object waits so long for a yard that was away
# What the API server allows in an Indexed Job with a limit of retries per index, unless a limit of failed indexes is
# given too: kubernetes 1.36, pkg/apis/batch/validation, completionsSoftLimit.
COMPLETIONS_MOST = 100_000


def objects_of(
    job: SubmittedJob, attempt: int, namespace: str = "", size: Size | None = None, resumes_at: int | None = None
) -> list[Object]:
    """The Job or JobSet, suspended, then what it owns: create them in this order, `owned` by the first, then admit.

    `size` is that of an elastic job, `resumes_at` the epochs that its checkpoint covers. Raises UserError with one
    sentence where Kubernetes cannot run the job.
    """
    if size is not None:
        job = job._replace(spec=job.spec.sized(size))
    job = job._replace(spec=_without_shell(job.spec))
    is_jobset = needs_jobset(job.spec)
    _refuse(job.spec, is_jobset)
    name = jobset_object_name(job, attempt) if is_jobset else job_object_name(job, attempt)
    files = files_of(job.spec)
    pods = [
        Pod(
            job,
            attempt,
            index,
            name,
            is_jobset,
            is_retried=job.spec.retries > 0 and not is_one_attempt(job.spec),
            tables=tables_of(job.spec, index),
            resumes_at=resumes_at,
        )
        for index in range(len(job.spec.groups))
    ]
    objects = [_jobset(pods) if is_jobset else _job(pods[0])]
    if files:
        objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-{TABLES}"}})
        objects[-1] |= {"immutable": True, "data": files}
    if job.spec.gang and job.spec.size > 1 and not is_jobset:
        objects.append(_service(job, attempt, name))
    return [_with_metadata(each, job, attempt, namespace) for each in objects]


def owned(child: Object, owner: Object) -> Object:
    """The child as it is sent once its owner is there and has a uid: it goes when the owner goes."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
    reference |= {"uid": owner["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}
    return {**child, "metadata": {**child["metadata"], "ownerReferences": [reference]}}


def needs_jobset(spec: JobSpec) -> bool:
    """One group with one replica is a Job; everything else is a JobSet."""
    return len(spec.groups) > 1 or spec.groups[0].count > 1


def is_one_attempt(spec: JobSpec) -> bool:
    """Is the object one attempt of the whole job? Then a retry is another object, and Kubernetes retries nothing."""
    return spec.gang or (spec.training is not None and spec.size == 1)


def _job(pod: Pod) -> Object:
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
        "backoffLimitPerIndex": spec.retries if pod.is_retried else 0,
        "podReplacementPolicy": "Failed",  # or two pods of one index run at once
    }
    if (most := _failed_indexes(spec, group, pod.is_jobset)) is not None:
        found["maxFailedIndexes"] = most
    if spec.deadline_seconds is not None:
        found["activeDeadlineSeconds"] = math.ceil(spec.deadline_seconds)
    if not is_one_attempt(spec):
        found["podFailurePolicy"] = {"rules": _ignored(spec, group)}
    return {**found, "template": pod_template(pod)}


def _parallelism(spec: JobSpec, group: GroupSpec) -> int:
    at_once = min(group.completions, group.parallelism or group.completions)
    return at_once if spec.limit is None or needs_jobset(spec) else min(at_once, spec.limit)


def _failed_indexes(spec: JobSpec, group: GroupSpec, is_jobset: bool) -> int | None:
    if is_jobset or spec.failure_policy is FailurePolicy.STOP:
        return 0
    return None if spec.max_fails is None else min(spec.max_fails, group.completions)


def _ignored(spec: JobSpec, group: GroupSpec) -> list[Object]:
    """What is no failure of the task: a node that was drained or lost, and a stop at a checkpoint."""
    rules: list[Object] = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    if spec.training is not None:
        codes = {"containerName": kind_name(group), "operator": "In", "values": [YIELD_EXIT_CODE]}
        rules.append({"action": "Ignore", "onExitCodes": codes})
    return rules


def _service(job: SubmittedJob, attempt: int, name: str) -> Object:
    """Gives the tasks of a gang host names. One that is not ready has its name too: rank 0 is waited for by name."""
    labels = labels_of(job, attempt)
    selector = {key: value for key, value in labels.items() if key.startswith("jobyard.dev/")}
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _with_metadata(made: Object, job: SubmittedJob, attempt: int, namespace: str) -> Object:
    metadata: Object = {
        "name": made["metadata"]["name"],
        **({"namespace": namespace} if namespace else {}),
        "labels": labels_of(job, attempt),
        "annotations": annotations_of(job),
    }
    return {**made, "metadata": metadata}


def _without_shell(spec: JobSpec) -> JobSpec:
    """The submitting shell's variables stay on its machine."""
    return replace(spec, inherited_env={})


def _refuse(spec: JobSpec, is_jobset: bool) -> None:
    named = f"job {spec.name!r}"
    if not spec.image:
        raise UserError(f"{named} has no image, and on Kubernetes every task runs in one; write image: in its manifest")
    for group in spec.groups:
        if group.completions > COMPLETIONS_MOST:
            raise UserError(
                f"{named} has {group.completions} tasks, and Kubernetes takes {COMPLETIONS_MOST} in a Job; split it"
            )
        if group.resources.whole_node:
            raise UserError(f"{named}: a whole node cannot be asked of Kubernetes yet; ask for its cores and GPUs")
    if is_jobset:
        _refuse_in_jobset(spec, named)


def _refuse_in_jobset(spec: JobSpec, named: str) -> None:
    """What only one Job can do: a JobSet ends with the first of its Jobs that fails, and does not count over them."""
    if spec.on_failure is FailurePolicy.CONTINUE or spec.max_fails:
        asked = "max_fails" if spec.max_fails else "on_failure: continue"
        raise UserError(
            f"{named}: {asked} needs one group with count 1 on Kubernetes:"
            " a JobSet stops when one of its Jobs has failed"
        )
    at_once = sum(group.count * _parallelism(spec, group) for group in spec.groups)
    if spec.limit is not None and spec.limit < at_once:
        raise UserError(
            f"{named}: a limit of {spec.limit} tasks over groups or replicas is more than JobSet can count;"
            " give the groups a parallelism instead"
        )
