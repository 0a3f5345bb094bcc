"""Pods of a group: which resources, volumes and deadlines do they have, and where may they run?"""

from __future__ import annotations

import math
from typing import Any

from jobyard.executors.kubernetes import names, reporting, storage
from jobyard.executors.kubernetes.capacity import GPU_MEMORY
from jobyard.executors.kubernetes.kinds import kind_of
from jobyard.executors.kubernetes.tables import DIRECTORY
from jobyard.executors.kubernetes.variables import Pod, command_of, variables_of
from jobyard.kubernetes.gpus import GPU, GPU_PRODUCT, mig_resource
from jobyard.model.job import GroupSpec
from jobyard.model.kubernetes import Toleration
from jobyard.model.resources import Resources

Object = dict[str, Any]
KEPT_SECONDS = 7 * 86400  # a finished object stays so long: the yard may be on a laptop that is off over a weekend
CONTAINERS = {"PyTorchJob": "pytorch"}  # names that operators look for
TABLES = "tables"  # the volume, and the end of the ConfigMap's name


def pod_template(pod: Pod) -> Object:
    spec, group = pod.spec, pod.group
    volumes, mounts = _volumes(pod)
    variables = variables_of(pod)
    container: Object = {
        "name": CONTAINERS.get(pod.kind) or names.kind_name(group),
        "image": spec.container.image,
        "command": command_of(pod, variables),
        "env": variables.env,
        "resources": resources_of(group),
        "volumeMounts": mounts,
    }
    inside: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(spec.policy.grace_seconds),
        "automountServiceAccountToken": False,  # a task needs no access to the API server
        "enableServiceLinks": False,  # or every service of the namespace puts its variables among ours
        **({"initContainers": [reporting.sidecar(spec.container.image)]} if pod.is_training else {}),
        "containers": [container],
        "volumes": volumes,
    }
    if spec.policy.timeout_seconds is not None:
        inside["activeDeadlineSeconds"] = math.ceil(spec.policy.timeout_seconds)
    if spec.gang and spec.size > 1 and pod.kind == "Job":
        inside["subdomain"] = pod.name  # the others see to it themselves
    if group.node_selector:
        inside["nodeSelector"] = dict(sorted(group.node_selector.items()))
    if wanted := _wanted_devices(group):
        terms = [{"matchExpressions": wanted}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        inside["affinity"] = {"nodeAffinity": required}
    if group.tolerations:
        inside["tolerations"] = [_toleration(each) for each in group.tolerations]
    return {"metadata": _metadata(pod), "spec": inside}


def resources_of(group: GroupSpec) -> Object:
    """Memory: request = limit, so that who asked too little is killed, not a neighbour, unless it wants no limit.

    Cores are reserved, and capped only where the manifest gives a cap. GPUs are whole, and limits alone: Kubernetes
    makes the request the same.
    """
    asked = group.resources
    requests: Object = amounts(asked)
    limits: Object = {}
    if group.cpu_limit_millis:
        limits["cpu"] = _cores(group.cpu_limit_millis)
    if asked.memory_mib and asked.memory_limit is not False:
        limits["memory"] = requests["memory"]
    if asked.gpus:
        limits[mig_resource(group.gpu_profile) if group.gpu_profile else GPU] = str(asked.gpus)
    return {"requests": requests, **({"limits": limits} if limits else {})}


def amounts(asked: Resources) -> Object:
    """Cores and memory, as pods ask for them."""
    memory = {"memory": f"{asked.memory_mib}Mi"} if asked.memory_mib else {}
    return {"cpu": _cores(asked.cpu_millis), **memory}


def _wanted_devices(group: GroupSpec) -> list[Object]:
    """By the labels of NVIDIA's feature discovery. Kubernetes knows no `at least`."""
    wanted: list[Object] = []
    if group.least_device_mib:
        wanted.append({"key": GPU_MEMORY, "operator": "Gt", "values": [str(group.least_device_mib - 1)]})
    if group.gpu_products:
        wanted.append({"key": GPU_PRODUCT, "operator": "In", "values": list(group.gpu_products)})
    return wanted


def _cores(millis: int) -> str:
    return str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"


def _metadata(pod: Pod) -> Object:
    labels = names.labels_of(pod.job, pod.attempt, pod.group, pod.site.yard) | {names.OBJECT: pod.name}
    if pod.number is not None and pod.kind == "Job":
        labels[names.TASK] = str(pod.number)
    metadata: Object = {"labels": labels}
    if pod.spec.container.git is not None:
        metadata["annotations"] = names.origin_of(pod.spec)
    if pod.spec.elastic is not None:
        size = pod.spec.training_size
        metadata["annotations"] = metadata.get("annotations", {}) | {
            names.WORKERS: str(size.workers),
            names.GPUS: str(size.gpus),
            names.EPOCHS_DONE: str(pod.resumes_at or 0),
            names.RESUMED: "0" if pod.resumes_at is None else "1",
            names.RESTARTED: "FALSE" if pod.resumes_at is None else "TRUE",
        }
    return metadata


def _toleration(toleration: Toleration) -> Object:
    """What is not said is left out: an empty key or effect means all of them."""
    said = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    return {name: value for name, value in said.items() if value}


def _volumes(pod: Pod) -> tuple[list[Object], list[Object]]:
    volumes = [storage.yard_volume(pod.site.storage)]
    mounts = storage.yard_mounts(pod.job.id, pod.site.storage, _directory(pod))
    if pod.group.shm_mib:
        shm = {"medium": "Memory", "sizeLimit": f"{pod.group.shm_mib}Mi"}
        volumes.append({"name": "shm", "emptyDir": shm})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    if pod.tables.files(pod.group):
        volumes.append({"name": TABLES, "configMap": {"name": f"{pod.name}-{TABLES}"}})
        mounts.append({"name": TABLES, "mountPath": DIRECTORY, "readOnly": True})
    if pod.is_training:
        volumes += reporting.volumes(pod.name)
        mounts += reporting.mounts()
    own_volumes, own_mounts = storage.claims(pod.spec.kubernetes.volumes)
    secret_volumes, secret_mounts = storage.secrets(pod.spec.kubernetes.secrets)
    return [*volumes, *own_volumes, *secret_volumes], [*mounts, *own_mounts, *secret_mounts]


def _directory(pod: Pod) -> str:
    """Tasks that do not belong together have directories of their own, the same for each attempt."""
    if pod.shares_directories or not pod.site.storage:
        return ""
    replica, completion = "$(JOB_INDEX)", "$(JOB_COMPLETION_INDEX)"
    if pod.number is not None:
        place = pod.spec.place_of(pod.number)
        replica, completion = str(place.replica), str(place.completion)
    if kind_of(pod.spec).name == "JobSet":  # also of a task of it that has a Job of its own
        return f"{names.kind_name(pod.group)}-{replica}-{completion}"
    return completion
