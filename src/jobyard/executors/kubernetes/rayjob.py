"""RayJob: what is a job on a Ray cluster of its own? The command runs once, on the head, and Ray has the workers.

The spec has two groups, `head` and `worker`: see `manifests/kinds.py`.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jobyard.executors.environment import shared_command
from jobyard.executors.kubernetes import names
from jobyard.executors.kubernetes.kinds import HEAD
from jobyard.executors.kubernetes.pods import amounts, pod_template, resources_of
from jobyard.executors.kubernetes.variables import Pod, unexpanded
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.environment import NOT_IN_RAY
from jobyard.model.job import JobSpec
from jobyard.model.ray import OWN_SUBMITTER
from jobyard.model.resources import Resources

Object = dict[str, Any]
WORKER = "worker"
SUBMITTER = "submitter"  # as group in the labels of the pod that hands the command to Ray
NAME_MOST = 47  # KubeRay 1.6, utils.MaxRayJobNameLength


def object_name(job: SubmittedJob, attempt: int) -> str:
    return names.gang_object_name(job, attempt, most=NAME_MOST)


def object_of(pods: list[Pod]) -> Object:
    head, worker = (next(pod for pod in pods if pod.group.name == name) for name in (HEAD, WORKER))
    most = worker.group.count_most or worker.group.count
    spec: Object = {
        "suspend": True,
        "shutdownAfterJobFinishes": True,  # KubeRay suspends no other
        # The cluster goes with the command: KubeRay would leave it running for so long. The RayJob itself stays.
        "ttlSecondsAfterFinished": 0,
        "entrypoint": entrypoint(head.spec),
        "submitterPodTemplate": _submitter(head),
        "rayClusterSpec": {
            **({"enableInTreeAutoscaling": True} if most > worker.group.count else {}),
            "headGroupSpec": {
                # No work is placed beside the command, and the dashboard is where it is handed in.
                "rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0"},
                "template": _template(head, "ray-head", needs_token=most > worker.group.count),
            },
            "workerGroupSpecs": [
                {
                    "groupName": WORKER,
                    "replicas": worker.group.count,
                    "minReplicas": worker.group.count,
                    "maxReplicas": most,
                    "rayStartParams": {},
                    "template": _template(worker, "ray-worker"),
                }
            ],
        },
    }
    policy = head.spec.policy
    limits = [each for each in (policy.timeout_seconds, policy.deadline_seconds) if each is not None]
    if limits:
        spec["activeDeadlineSeconds"] = math.ceil(min(limits))
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": head.name}, "spec": spec}


def entrypoint(spec: JobSpec) -> str:
    """The command as words of a shell: KubeRay puts them behind `ray job submit --`, in the arguments of a pod."""
    return unexpanded(shlex.join(shared_command(spec.groups[0].command)))


def is_submitter(pod: Mapping[str, Any]) -> bool:
    """Of the pods of a RayJob only this one is made by a Job."""
    return "batch.kubernetes.io/job-name" in (pod["metadata"].get("labels") or {})


def _template(pod: Pod, container: str, needs_token: bool = False) -> Object:
    """KubeRay makes the command itself: `ray start`, and on the head what belongs to it."""
    number = pod.spec.offsets[pod.group_index]
    template = pod_template(pod._replace(number=number))
    inside = template["spec"]
    (only,) = inside["containers"]
    only["name"] = container
    del only["command"]
    if pod.group.name == HEAD:  # both together take what its slot holds
        own, beside = pod.group.resources, _beside_head(pod.group.resources)
        left = replace(
            own, cpu_millis=own.cpu_millis - beside.cpu_millis, memory_mib=own.memory_mib - beside.memory_mib
        )
        only["resources"] = resources_of(replace(pod.group, resources=left))
    left_out = NOT_IN_RAY if pod.group.name == HEAD else NOT_IN_RAY | {"YARD_TASK"}
    only["env"] = [each for each in only["env"] if each["name"] not in left_out]
    inside.pop("activeDeadlineSeconds", None)  # the job's own is enough
    if needs_token:  # the autoscaler beside the head asks the API server for workers
        del inside["automountServiceAccountToken"]
    if pod.group.name == WORKER:
        only["lifecycle"] = {"preStop": {"exec": {"command": ["/bin/sh", "-c", "ray stop"]}}}
        inside.pop("initContainers", None)  # only the command reports
    return template


def _beside_head(head: Resources) -> Resources:
    """What the submitter asks for: a part of what the head was given."""
    return Resources(min(OWN_SUBMITTER.cpu_millis, head.cpu_millis), min(OWN_SUBMITTER.memory_mib, head.memory_mib))


def _submitter(head: Pod) -> Object:
    """What the command prints is this pod's log."""
    labels = names.labels_of(head.job, head.attempt, yard=head.site.yard)
    labels |= {names.OBJECT: head.name, names.GROUP: SUBMITTER}
    container = {
        "name": "ray-job-submitter",
        "image": head.spec.container.image,
        "resources": {"requests": amounts(_beside_head(head.group.resources))},
    }
    inside = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
    return {"metadata": {"labels": labels}, "spec": inside}
