"""What does a PyTorchJob say that other hands made, and what is it with another number of GPUs? Pure: objects only."""

from __future__ import annotations

import re
from copy import deepcopy
from datetime import datetime
from typing import Any

from jobyard.compat.genai.records import Record

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
REPLICAS, REQUEST, LIMIT = "replicas", "request", "limit"  # annotations, by which it is adopted
RESTARTS = "jobyard.dev/restarts"
SCALING = "jobyard.dev/scaling"  # it is suspended for our sake, and gets so many GPUs
OURS = "jobyard.dev/yard"  # a label of what yards made
_PROCESSES = re.compile(r"(--num[_-]processes[= ])[0-9]+")


def is_adopted(job: Object) -> bool:
    """Not a yard's own, and with a range that can be read."""
    return not is_a_yards(job) and all((_number(job, name) or 0) > 0 for name in (REPLICAS, REQUEST, LIMIT))


def is_a_yards(job: Object) -> bool:
    return OURS in (job["metadata"].get("labels") or {})


def record_of_foreign(job: Object) -> Record:
    arrival = int(datetime.fromisoformat(job["metadata"]["creationTimestamp"]).timestamp())
    status = status_of(job)
    return Record(
        job_name=job["metadata"]["name"],
        gpu_req=_number(job, REQUEST) or 0,
        gpu_lim=_number(job, LIMIT) or 0,
        gpu_assigned=0 if status == "scheduled" else gpus_of(job),
        replicas=_number(job, REPLICAS) or 1,
        total_epochs=0,
        job_arrival_time=arrival,
        last_checkpoint_time=arrival,
        completed_epochs=0,
        time_bw_checkpoints=None,
        status=status,
        restarts=_number(job, RESTARTS) or 0,
        is_resizing=SCALING in annotations_of(job),
    )


def status_of(job: Object) -> str:
    if has_condition(job, "Succeeded"):
        return "completed"
    if has_condition(job, "Failed"):
        return "failed"
    is_running = has_condition(job, "Running") or has_condition(job, "Restarting")
    return "running" if is_running and not has_condition(job, "Suspended") else "scheduled"


def has_condition(job: Object, name: str) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(each["type"] == name and each["status"] == "True" for each in conditions)


def gpus_of(job: Object) -> int:
    """Of one replica, all of its containers together."""
    templates = _templates(job)
    return max((sum(map(_gpus, each["spec"]["containers"])) for each in templates), default=0)


def replicas_of(job: Object) -> int:
    specs = job["spec"].get("pytorchReplicaSpecs") or {}
    return sum(int(each.get("replicas") or 1) for each in specs.values()) or 1


def resized(job: Object, gpus: int) -> Object:
    """The same object, ready to go on with so many GPUs for each replica: its first container gets what is new.

    `NGPU` and `--num_processes=` follow where they are; neither is put where it was not.
    """
    made = deepcopy(job)
    for template in _templates(made):
        containers = template["spec"]["containers"]
        if not any(map(_gpus, containers)):
            continue
        first = containers[0]
        mine = max(0, gpus - sum(map(_gpus, containers[1:])))
        resources = first.setdefault("resources", {})
        for side in ("requests", "limits"):
            resources[side] = {**(resources.get(side) or {}), GPU: str(mine)}
        for variable in first.get("env") or ():
            if variable["name"] == "NGPU":
                variable["value"] = str(gpus)
        for words in ("command", "args"):
            if first.get(words):
                first[words] = _with_processes(first[words], gpus)
    made["metadata"]["annotations"] = {
        **{name: value for name, value in annotations_of(job).items() if name != SCALING},
        RESTARTS: str((_number(job, RESTARTS) or 0) + 1),
    }
    made["spec"]["runPolicy"] = {**(made["spec"].get("runPolicy") or {}), "suspend": False}
    return made


def annotations_of(job: Object) -> dict[str, str]:
    return job["metadata"].get("annotations") or {}


def is_suspended(job: Object) -> bool:
    return bool((job["spec"].get("runPolicy") or {}).get("suspend"))


def _with_processes(words: list[str], gpus: int) -> list[str]:
    """`--num_processes=2`, inside a longer text too, and `--num_processes` `2` as two words."""
    new = [_PROCESSES.sub(rf"\g<1>{gpus}", word) for word in words]
    for index, word in enumerate(new[:-1]):
        if word in ("--num_processes", "--num-processes") and new[index + 1].isdigit():
            new[index + 1] = str(gpus)
    return new


def _templates(job: Object) -> list[Object]:
    return [each["template"] for each in (job["spec"].get("pytorchReplicaSpecs") or {}).values()]


def _gpus(container: Object) -> int:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return int(amounts.get(GPU, 0))


def _number(job: Object, name: str) -> int | None:
    text = annotations_of(job).get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None
