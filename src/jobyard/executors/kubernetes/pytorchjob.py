"""PyTorchJob: what is a gang for Kubeflow's training operator? Rank 0 is its Master, the others are Workers."""

from __future__ import annotations

import math
from typing import Any

from jobyard.executors.kubernetes.names import gang_object_name
from jobyard.executors.kubernetes.pods import KEPT_SECONDS, pod_template
from jobyard.executors.kubernetes.variables import Pod
from jobyard.executors.protocol import SubmittedJob

Object = dict[str, Any]


def object_name(job: SubmittedJob, attempt: int) -> str:
    """Its pods and services are called `<it>-worker-<index>`."""
    return gang_object_name(job, attempt, most=min(52, 63 - len(f"-worker-{job.spec.size}")))


def object_of(pods: list[Pod]) -> Object:
    """The operator tells each pod its rank, the world size and where the master is; all else is told as elsewhere."""
    (pod,) = pods
    spec = pod.spec
    # No backoffLimit: its pods are never restarted anyhow, and with a limit the operator deletes a pod that failed
    # before it says so of the job, and at times begins the pod anew.
    policy: Object = {
        "suspend": True,
        "cleanPodPolicy": "None",  # who has ended can still be read
        "ttlSecondsAfterFinished": KEPT_SECONDS,
    }
    if spec.policy.deadline_seconds is not None:
        policy["activeDeadlineSeconds"] = math.ceil(spec.policy.deadline_seconds)
    replicas = {"Master": _replicas(pod._replace(number=0), 1)}
    if spec.size > 1:
        replicas["Worker"] = _replicas(pod, spec.size - 1)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": pod.name},
        "spec": {"runPolicy": policy, "pytorchReplicaSpecs": replicas},
    }


def _replicas(pod: Pod, count: int) -> Object:
    return {"replicas": count, "restartPolicy": "Never", "template": pod_template(pod)}
